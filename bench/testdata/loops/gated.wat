;; Searches the memory a thousand times, which needs a grant. `wat2wasm gated.wat`.
(module
  (import "karmax" "call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 1024) "recall{\"query\":\"q\",\"limit\":1}") (global $n (mut i32) (i32.const 1000))
  (func (export "run") (loop $l
    (if (i32.lt_s (call $call (i32.const 1024) (i32.const 6) (i32.const 1030) (i32.const 23) (i32.const 4096) (i32.const 4096)) (i32.const 0)) (then unreachable))
    (global.set $n (i32.sub (global.get $n) (i32.const 1)))
    (br_if $l (global.get $n)))))
