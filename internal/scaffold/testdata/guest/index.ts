// A loop that uses what the kit has, for a test.
import * as loop from "./ombud/loop";
import { Value } from "./ombud/loop";
import { failed, provide } from "./ombud/tools";

export { karmax_alloc, tool } from "./ombud/tools";

provide("double", (input: Value): Value => {
  const n = input.get("n").num;
  return n < 0 ? failed("too small") : Value.object().with("twice", Value.number(2 * n));
});

function must(what: string, answer: loop.Answer): loop.Answer {
  if (!answer.ok) loop.fail(what + ": " + answer.error);
  return answer;
}

export function run(): void {
  const t = loop.trigger();
  const payload = t.payload;
  if (payload.get("fail").isTrue) loop.fail("as it was told");
  loop.log(loop.INFO, t.loop + " by " + t.kind + " with " + payload.toString());

  const page = must("http", loop.http("GET", "https://a.example/x", Value.object().with("Accept", Value.of("text/plain"))));
  const long = must("ask", loop.ask(loop.fence(page.field("body"), "a \"page\""))).field("answer");
  must("keep", loop.keep("g", "k", "v\n" + page.value.get("status").toString(), 60));
  must("notify", loop.notify("ü€😀", long.length.toString() + " " + loop.kept("g", "k").field("value")));

  const refused = loop.callTool("shell.exec");
  if (!refused.refused || refused.ok) loop.fail("a tool that is not named was called");
  loop.log(loop.WARN, refused.error);
  must("after", loop.after("again", 3600000, Value.object().with("list", Value.list([Value.number(1.5), Value.bool(true), Value.none()]))));
  for (let i = 0; i < 40000; i++) new ArrayBuffer(1 << 10); // more than fits if nothing is freed
}
