#!/usr/bin/env python3
"""An external adapter for ombud: a directory is the chat network. docs/channels/external.md is the protocol.

    directory.py SOCKET CREDENTIAL-FILE DIR

A new file DIR/in/CHAT/NAME is a message, and who may write into DIR/in/CHAT is the user CHAT. Write it under a
name that begins with a dot and rename it when it is whole. An answer is a new file in DIR/out/CHAT.
"""
import json, os, pathlib, socket, struct, sys, threading, time

SOCKET, CREDENTIAL, DIR = sys.argv[1], pathlib.Path(sys.argv[2]).read_text().strip(), pathlib.Path(sys.argv[3])

class Refused(Exception):
    """ombud said no. The first argument is the class of the error: it tells whether to try again."""

def call(method, **params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"credential": CREDENTIAL, **params}}).encode()
    with socket.socket(socket.AF_UNIX) as s, s.makefile("rb") as answers:
        s.settimeout(90)
        s.connect(SOCKET)
        s.sendall(struct.pack(">I", len(body)) + body)
        head = answers.read(4)
        if len(head) < 4:
            raise ConnectionError("ombud is gone")
        answer = json.loads(answers.read(struct.unpack(">I", head)[0]))
    if "error" in answer:
        raise Refused(answer["error"]["data"]["class"], answer["error"]["message"])
    return answer["result"]

def hear():
    for path in sorted((DIR / "in").glob("*/[!.]*")):
        # The key is the same however often this is tried, and another for a new file of the same name.
        key, user = f"{path.name} {path.stat().st_mtime_ns}", path.parent.name
        try:
            call("adapter.deliver", key=key, chat=user, sender=user, text=path.read_text(errors="replace"))
            path.unlink()  # not before: now ombud has it for good
        except Refused as e:
            if e.args[0] not in ("invalid", "conflict"):
                raise  # it is tried again
            path.rename(path.with_name("." + path.name + ".refused"))
    time.sleep(0.3)

def say():
    for m in call("adapter.next", wait_s=50)["messages"] or []:
        path = DIR / "out" / m["chat"] / (m["key"] + ".md")
        if path.exists():  # written before, and the word of it was lost
            result = {"result": "sent", "ref": path.name}
        elif m["again"]:  # it may have been written, and read and removed since: nobody can tell
            result = {"result": "unknown", "error": "it is not there, and may have been"}
        else:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name("." + path.name)
                part.write_text(m["text"])
                part.rename(path)  # the one moment it comes to be there
                result = {"result": "sent", "ref": path.name}
            except OSError as e:  # such as a full disk: it surely is not there
                result = {"result": "not_sent", "error": str(e), "retry_after_s": 30}
        call("adapter.ack", key=m["key"], **result)

def forever(step):
    while True:
        try:
            step()
        except (Refused, OSError, ValueError) as e:
            print(e, file=sys.stderr)
            if isinstance(e, Refused) and e.args[0] == "denied":
                os._exit(1)  # the adapter was removed: this credential will never be good again
            time.sleep(1)

threading.Thread(target=forever, args=(say,), daemon=True).start()
forever(hear)
