#!/usr/bin/env python3
"""A tool process for ombud: counts words. docs/tool-process.md is the protocol."""
import json, struct, sys

TOOLS = [{
    "name": "count",
    "description": "Count the words and characters of a text.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}},
                     "required": ["text"], "additionalProperties": False},
    "required_scope": "tool:words.count",
}]

def read():
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        sys.exit(0)
    return json.loads(sys.stdin.buffer.read(struct.unpack(">I", head)[0]))

def write(message):
    body = json.dumps(message).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(body)) + body)
    sys.stdout.buffer.flush()

while True:
    m = read()
    if m["type"] == "ToolHello":
        write({"type": "ToolRegister", "tool_process_name": "words", "tools": TOOLS})
    elif m["type"] == "InvokeTool":
        try:
            text = m["input"]["text"]
            write({"type": "ToolResult", "call_id": m["call_id"], "verified": "NotApplicable",
                   "output": {"words": len(text.split()), "characters": len(text)}})
        except Exception as e:
            write({"type": "ToolError", "call_id": m["call_id"], "code": "failed", "message": str(e)})
    elif m["type"] == "ToolShutdown":
        sys.exit(0)
    # Anything else, such as CancelInvocation of a call that is done already, is passed over.
