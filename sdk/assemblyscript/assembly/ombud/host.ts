// What the sandbox offers: one function that makes a call, and one that fetches an answer
// for which there was no room.
import { Value } from "./json";

// @ts-ignore: a decorator of AssemblyScript
@external("ombud", "call")
declare function hostCall(name: usize, nameLen: u32, request: usize, requestLen: u32, out: usize, outCap: u32): u64;

// @ts-ignore: a decorator of AssemblyScript
@external("ombud", "take")
declare function hostTake(out: usize, outCap: u32): i32;

// The statuses of a call.
export const OK: i32 = 0;
export const FAILED: i32 = 1;
export const UNDECLARED: i32 = 2; // loop.yaml does not name it
export const REFUSED: i32 = 3; // the loop may not
export const MALFORMED: i32 = 5; // the request cannot be read, or has more than 64 KiB
export const UNKNOWN: i32 = 6; // it may or may not have happened: do not repeat it

/** What came of a call. There are no exceptions here, so look at ok. */
export class Answer {
  constructor(
    public status: i32,
    /** What was answered, or with a status other than OK what was wrong. */
    public text: string,
  ) {}

  get ok(): bool {
    return this.status == OK;
  }

  /** The call may not be made: loop.yaml does not name it, or it is not granted. */
  get refused(): bool {
    return this.status == REFUSED || this.status == UNDECLARED;
  }

  get error(): string {
    return this.ok ? "" : this.text;
  }

  /** The answer as JSON, null if there is none. */
  get value(): Value {
    return this.ok && this.text.length > 0 ? Value.parse(this.text) : Value.none();
  }

  /** A text of the answer, under a key. */
  field(key: string): string {
    return this.value.get(key).text;
  }
}

const ROOM: u32 = 8 << 10;
const room: usize = memory.data(ROOM);

/** Makes a host call. The request is JSON, or a bare word where the host wants one. */
export function call(name: string, request: string): Answer {
  const n = String.UTF8.encode(name);
  const r = String.UTF8.encode(request);
  const got = hostCall(
    changetype<usize>(n), <u32>n.byteLength, changetype<usize>(r), <u32>r.byteLength, room, ROOM,
  );
  const status = <i32>(got >> 32);
  const length = <u32>got;
  if (length <= ROOM) {
    return new Answer(status, String.UTF8.decodeUnsafe(room, length));
  }
  const long = new ArrayBuffer(<i32>length);
  if (hostTake(changetype<usize>(long), length) != <i32>length) return new Answer(FAILED, "the answer was lost");
  return new Answer(status, String.UTF8.decode(long));
}

/** Ends the run with an error, which is in the log. The compiler has what goes wrong call it. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const text = message ? message : "aborted";
  const at = file ? " (" + file + ":" + line.toString() + ":" + column.toString() + ")" : "";
  call("write_log", Value.object().with("level", Value.of("error")).with("text", Value.of(text + at)).toString());
  unreachable();
}
