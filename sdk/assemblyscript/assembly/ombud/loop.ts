// What a loop can do. Each function needs the host function of its name in loop.yaml, and
// what that reaches under capabilities or tools.
//
// A run can be ended at any call and run again from its beginning. The calls it made before
// are then answered as they were, so decide by what they answer, and not by randomness.
import { Answer, abort, call } from "./host";
import { Value } from "./json";

export { Answer, Value };
export { FAILED, MALFORMED, OK, REFUSED, UNDECLARED, UNKNOWN } from "./host";

export const DEBUG = "debug";
export const INFO = "info";
export const WARN = "warn";
export const ERROR = "error";

function object(a: string, va: string, b: string = "", vb: string = "", c: string = "", vc: string = ""): Value {
  const v = Value.object().with(a, Value.of(va));
  if (b != "") v.with(b, Value.of(vb));
  if (c != "") v.with(c, Value.of(vc));
  return v;
}

function send(name: string, request: Value): Answer {
  return call(name, request.toString());
}

/** Ends the run with an error. */
export function fail(message: string): void {
  abort(message, null, 0, 0);
}

/** What started the run. */
export class Trigger {
  constructor(
    public loop: string,
    /** schedule, event, webhook, timer, manual or retry */
    public kind: string,
    public payload: Value,
  ) {}
}

export function trigger(): Trigger {
  const v = call("trigger", "").value;
  return new Trigger(v.get("loop").text, v.get("kind").text, v.get("payload"));
}

/** Keeps a line of the log: host function write_log. */
export function log(level: string, text: string): void {
  send("write_log", object("level", level, "text", text));
}

/** Says how far a long run is. */
export function progress(text: string, done: i32, total: i32): void {
  send("progress", object("text", text).with("done", Value.number(done)).with("total", Value.number(total)));
}

/** A setting of the loop, "" if it is not set. */
export function config(key: string): string {
  return call("config", key).field("value");
}

/** Searches the memory: hits(answer) are the facts. */
export function recall(query: string, limit: i32 = 5): Answer {
  return send("recall", object("query", query).with("limit", Value.number(limit)));
}

export function hits(answer: Answer): string[] {
  const out: string[] = [];
  const list = answer.value.get("hits");
  for (let i = 0; i < list.length; i++) out.push(list.at(i).text);
  return out;
}

export function remember(fact: string): Answer {
  return send("remember", object("fact", fact));
}

export function notify(title: string, body: string): Answer {
  return send("notify", object("title", title, "body", body));
}

/** Gives the agent an instruction: answer.field("answer") is what it says. */
export function ask(prompt: string): Answer {
  return send("ask", object("prompt", prompt));
}

export function harness(prompt: string): Answer {
  return send("harness", object("prompt", prompt));
}

export function gateway(prompt: string): Answer {
  return send("gateway", object("prompt", prompt));
}

export function summarize(prompt: string): Answer {
  return send("summarize", object("prompt", prompt));
}

export function propose(title: string, summary: string, action: string): Answer {
  return send("propose", object("Title", title, "Summary", summary, "Action", action));
}

/** due is a time in RFC 3339. */
export function remind(title: string, due: string, notes: string): Answer {
  return send("remind", object("Title", title, "Due", due, "Notes", notes));
}

/** A web request to a host of the manifest. value.get("status") is a number, field("body") the text. */
export function http(method: string, url: string, headers: Value = Value.object(), body: string = ""): Answer {
  return send("http", object("method", method, "url", url, "body", body).with("headers", headers));
}

/** Calls a tool of the manifest. That it failed is field("error"); field("output") is what it says. */
export function callTool(name: string, input: Value = Value.object()): Answer {
  return send("tool", object("name", name).with("input", input));
}

/** Keeps a short note for some seconds, or for good with 0: host function short_set. */
export function keep(group: string, key: string, value: string, seconds: i64 = 0): Answer {
  return send("short_set", object("Group", group, "Key", key, "Value", value).with("ttl_seconds", Value.number(<f64>seconds)));
}

/** value.get("found") says whether it is there, field("value") is the note: short_get. */
export function kept(group: string, key: string): Answer {
  return send("short_get", object("Group", group, "Key", key));
}

export function forget(group: string, key: string): Answer {
  return send("short_forget", object("Group", group, "Key", key));
}

/** value.get("entries") is a list of objects with key and value: short_all. */
export function allKept(group: string): Answer {
  return send("short_all", object("Group", group));
}

export function runLoop(name: string): Answer {
  return call("run_loop", name);
}

/** Waits; the run is put away meanwhile. */
export function sleep(milliseconds: i64): Answer {
  return send("sleep", Value.object().with("ms", Value.number(<f64>milliseconds)));
}

/** Starts the loop again later, with a trigger of kind timer. The payload is an object, or null. */
export function after(id: string, milliseconds: i64, payload: Value = Value.none()): Answer {
  return send("after", object("id", id).with("ms", Value.number(<f64>milliseconds)).with("payload", payload));
}

export function cancelAfter(id: string): Answer {
  return send("cancel_after", object("id", id));
}

/** Waits for a signal: value.get("payload"). */
export function waitSignal(name: string, milliseconds: i64): Answer {
  return send("wait_signal", object("name", name).with("timeout_ms", Value.number(<f64>milliseconds)));
}

/** Marks a text as what somebody else wrote, for a prompt. */
export function fence(text: string, from: string): string {
  const a = send("fence", object("text", text, "from", from));
  if (!a.ok) fail("fence: " + a.error);
  return a.field("text");
}

/**
 * Begins a step of the loop's own. Of one that is done, value.get("done") is true and
 * value.get("result") what it came to; else do it, and call stepEnd.
 */
export function stepBegin(name: string, once: bool = false): Answer {
  return send("step_begin", object("name", name).with("once", Value.bool(once)));
}

export function stepEnd(name: string, result: Value): Answer {
  return send("step_end", object("name", name).with("result", result));
}
