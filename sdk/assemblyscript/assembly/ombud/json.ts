// JSON, as far as a loop needs it.

enum Kind {
  None,
  Bool,
  Number,
  Text,
  List,
  Object,
}

/** A JSON value. What is not there, or cannot be read, is null. */
export class Value {
  private kind: Kind = Kind.None;
  private n: f64 = 0;
  private s: string = "";
  private items: Value[] = [];
  private keys: string[] = [];

  static none(): Value {
    return new Value();
  }

  static of(text: string): Value {
    const v = new Value();
    v.kind = Kind.Text;
    v.s = text;
    return v;
  }

  static number(n: f64): Value {
    const v = new Value();
    v.kind = Kind.Number;
    v.n = n;
    return v;
  }

  static bool(b: bool): Value {
    const v = Value.number(b ? 1 : 0);
    v.kind = Kind.Bool;
    return v;
  }

  static list(items: Value[] = []): Value {
    const v = new Value();
    v.kind = Kind.List;
    v.items = items;
    return v;
  }

  static object(): Value {
    const v = new Value();
    v.kind = Kind.Object;
    return v;
  }

  /** Reads JSON. A text that is none is null. */
  static parse(text: string): Value {
    const p = new Parser(text);
    const v = p.value(0);
    p.space();
    return p.bad || p.at < text.length ? Value.none() : v;
  }

  /** Sets a key of an object, and returns the object. */
  with(key: string, value: Value): Value {
    const i = this.keys.indexOf(key);
    if (i >= 0) {
      this.items[i] = value;
    } else {
      this.keys.push(key);
      this.items.push(value);
    }
    return this;
  }

  get isNull(): bool {
    return this.kind == Kind.None;
  }

  /** The text of a text, "" of anything else. */
  get text(): string {
    return this.kind == Kind.Text ? this.s : "";
  }

  /** The number of a number, 0 of anything else. */
  get num(): f64 {
    return this.kind == Kind.Number ? this.n : 0;
  }

  get isTrue(): bool {
    return this.kind == Kind.Bool && this.n != 0;
  }

  /** How many items a list or an object has. */
  get length(): i32 {
    return this.items.length;
  }

  /** An item of a list, or the value of an object's n-th key. */
  at(n: i32): Value {
    return n >= 0 && n < this.items.length ? this.items[n] : Value.none();
  }

  /** The n-th key of an object. */
  key(n: i32): string {
    return n >= 0 && n < this.keys.length ? this.keys[n] : "";
  }

  /** The value of a key, null if there is none. */
  get(key: string): Value {
    const i = this.keys.indexOf(key);
    return i >= 0 ? this.items[i] : Value.none();
  }

  toString(): string {
    switch (this.kind) {
      case Kind.Bool:
        return this.n != 0 ? "true" : "false";
      case Kind.Number:
        if (!isFinite(this.n)) return "null";
        // A whole number has no point: the host wants integers as such.
        return Math.trunc(this.n) == this.n && Math.abs(this.n) < 9e15 ? (<i64>this.n).toString() : this.n.toString();
      case Kind.Text:
        return quoted(this.s);
      case Kind.List: {
        const parts: string[] = [];
        for (let i = 0; i < this.items.length; i++) parts.push(this.items[i].toString());
        return "[" + parts.join(",") + "]";
      }
      case Kind.Object: {
        const parts: string[] = [];
        for (let i = 0; i < this.items.length; i++) parts.push(quoted(this.keys[i]) + ":" + this.items[i].toString());
        return "{" + parts.join(",") + "}";
      }
      default:
        return "null";
    }
  }
}

const hex = "0123456789abcdef";

function quoted(s: string): string {
  const parts: string[] = [];
  let from = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    let as = "";
    if (c == 0x22 || c == 0x5c) as = "\\" + s.charAt(i);
    else if (c == 0x0a) as = "\\n";
    else if (c < 0x20) as = "\\u00" + hex.charAt(c >> 4) + hex.charAt(c & 15);
    else continue;
    parts.push(s.substring(from, i));
    parts.push(as);
    from = i + 1;
  }
  parts.push(s.substring(from));
  return '"' + parts.join("") + '"';
}

const DEEP = 64; // how far values may be within each other

class Parser {
  at: i32 = 0;
  bad: bool = false;

  constructor(private s: string) {}

  private peek(): i32 {
    return this.at < this.s.length ? this.s.charCodeAt(this.at) : -1;
  }

  space(): void {
    while (true) {
      const c = this.peek();
      if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) return;
      this.at++;
    }
  }

  private fail(): Value {
    this.bad = true;
    return Value.none();
  }

  private word(w: string, v: Value): Value {
    if (!this.s.startsWith(w, this.at)) return this.fail();
    this.at += w.length;
    return v;
  }

  value(depth: i32): Value {
    this.space();
    const c = this.peek();
    if (this.bad || depth > DEEP) return this.fail();
    if (c == 0x7b) return this.object(depth);
    if (c == 0x5b) return this.list(depth);
    if (c == 0x22) return Value.of(this.text());
    if (c == 0x74) return this.word("true", Value.bool(true));
    if (c == 0x66) return this.word("false", Value.bool(false));
    if (c == 0x6e) return this.word("null", Value.none());
    return this.number();
  }

  private number(): Value {
    const from = this.at;
    while (true) {
      const c = this.peek();
      if ((c < 0x30 || c > 0x39) && c != 0x2b && c != 0x2d && c != 0x2e && c != 0x65 && c != 0x45) break;
      this.at++;
    }
    const n = parseFloat(this.s.substring(from, this.at));
    return from == this.at || isNaN(n) ? this.fail() : Value.number(n);
  }

  private text(): string {
    const parts: string[] = [];
    let from = ++this.at;
    while (true) {
      const c = this.peek();
      if (c < 0x20) {
        this.bad = true;
        return "";
      }
      if (c != 0x22 && c != 0x5c) {
        this.at++;
        continue;
      }
      parts.push(this.s.substring(from, this.at++));
      if (c == 0x22) return parts.join("");
      parts.push(this.escaped());
      from = this.at;
    }
  }

  private escaped(): string {
    const c = this.peek();
    this.at++;
    if (c == 0x6e) return "\n";
    if (c == 0x74) return "\t";
    if (c == 0x72) return "\r";
    if (c == 0x62) return "\b";
    if (c == 0x66) return "\f";
    if (c == 0x22 || c == 0x5c || c == 0x2f) return String.fromCharCode(c);
    const code = c == 0x75 && this.at + 4 <= this.s.length ? I32.parseInt(this.s.substring(this.at, this.at + 4), 16) : -1;
    if (code < 0) this.bad = true;
    this.at += 4;
    return String.fromCharCode(max(code, 0));
  }

  private list(depth: i32): Value {
    const items: Value[] = [];
    this.at++;
    this.space();
    if (this.peek() == 0x5d) {
      this.at++;
      return Value.list(items);
    }
    while (true) {
      items.push(this.value(depth + 1));
      this.space();
      const c = this.peek();
      this.at++;
      if (this.bad || (c != 0x2c && c != 0x5d)) return this.fail();
      if (c == 0x5d) return Value.list(items);
    }
  }

  private object(depth: i32): Value {
    const v = Value.object();
    this.at++;
    this.space();
    if (this.peek() == 0x7d) {
      this.at++;
      return v;
    }
    while (true) {
      this.space();
      if (this.peek() != 0x22) return this.fail();
      const key = this.text();
      this.space();
      if (this.bad || this.peek() != 0x3a) return this.fail();
      this.at++;
      v.with(key, this.value(depth + 1));
      this.space();
      const c = this.peek();
      this.at++;
      if (this.bad || (c != 0x2c && c != 0x7d)) return this.fail();
      if (c == 0x7d) return v;
    }
  }
}
