// Tools that the loop lends to the agent. A loop that provides some has in its index.ts
//
//   import { provide } from "./ombud/tools";
//   export { karmax_alloc, tool } from "./ombud/tools";
//
//   provide("double", (input: Value): Value => Value.number(2 * input.get("n").num));
import { Value } from "./json";

type Tool = (input: Value) => Value;

const tools = new Map<string, Tool>();

/** Says what a provided tool does. Its name and parameters are in loop.yaml under provides. */
export function provide(name: string, does: Tool): void {
  tools.set(name, does);
}

/** What a tool answers that failed. */
export function failed(why: string): Value {
  return Value.object().with("error", Value.of(why));
}

export function karmax_alloc(size: i32): usize {
  return __pin(changetype<usize>(new ArrayBuffer(max(size, 1))));
}

export function tool(request: usize, length: i32): u64 {
  const req = Value.parse(String.UTF8.decodeUnsafe(request, length));
  const name = req.get("name").text;
  const out = tools.has(name) ? tools.get(name)(req.get("input")) : failed("the loop does not implement the tool " + name);
  const raw = String.UTF8.encode(out.toString());
  return (<u64>__pin(changetype<usize>(raw)) << 32) | <u64>raw.byteLength;
}
