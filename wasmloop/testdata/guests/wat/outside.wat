;; Pointers outside of the memory and lengths that lie. It traps where a code is not the
;; one the convention says.
(module
  (import "karmax" "call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "config")
  (func $want (param $code i32) (param $want i32)
    (if (i32.ne (local.get $code) (local.get $want)) (then unreachable)))
  (func (export "run")
    ;; a name outside
    (call $want (call $call (i32.const 65534) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 100)) (i32.const -5))
    ;; a name longer than allowed
    (call $want (call $call (i32.const 1024) (i32.const 65537) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 100)) (i32.const -5))
    ;; a request outside, past the end of 32 bits
    (call $want (call $call (i32.const 1024) (i32.const 6) (i32.const 0xfffffff0) (i32.const 32) (i32.const 2048) (i32.const 100)) (i32.const -5))
    ;; a request longer than allowed
    (call $want (call $call (i32.const 1024) (i32.const 6) (i32.const 0) (i32.const 0x7fffffff) (i32.const 2048) (i32.const 100)) (i32.const -5))
    ;; an answer outside, with a length that claims room
    (call $want (call $call (i32.const 1024) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 65530) (i32.const 0x7fffffff)) (i32.const -1))
    ;; no room for the answer, and then room
    (call $want (call $call (i32.const 1024) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 1)) (i32.const -4))
    (call $want (call $call (i32.const 1024) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 16)) (i32.const 16))
    ;; no name
    (call $want (call $call (i32.const 1024) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 100)) (i32.const -2))))
