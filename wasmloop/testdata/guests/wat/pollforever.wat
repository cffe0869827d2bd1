;; Waits for a time that is longer than a number can hold, again and again.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (loop $l
    (i64.store (i32.const 24) (i64.const 0x7fffffffffffffff))
    (drop (call $poll (i32.const 0) (i32.const 4096) (i32.const 1) (i32.const 8192))) (br $l))))
