// A loop that tells you that it ran. ./ombud/loop.ts is all that a loop can call.
import * as loop from "./ombud/loop";

// For a loop that provides tools, let the host reach them:
// export { karmax_alloc, tool } from "./ombud/tools";

export function run(): void {
  let who = loop.config("who");
  if (who == "") who = "world";
  loop.log(loop.INFO, "hello to " + who + ", by " + loop.trigger().kind);
  const told = loop.notify("hello", "hello " + who);
  if (!told.ok) loop.fail(told.error);
}
