;; Takes an answer there is none of, and takes one to outside of its memory.
(module
  (import "ombud" "take" (func $take (param i32 i32) (result i32)))
  (import "ombud" "call" (func $call (param i32 i32 i32 i32 i32 i32) (result i64)))
  (memory (export "memory") 1) (data (i32.const 1024) "config")
  (func $want (param $got i32) (param $want i32) (if (i32.ne (local.get $got) (local.get $want)) (then unreachable)))
  (func (export "run")
    (call $want (call $take (i32.const 0) (i32.const 65536)) (i32.const -1))
    ;; no room at all, so that there is one
    (call $want (i32.wrap_i64 (call $call (i32.const 1024) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))) (i32.const 16))
    (call $want (call $take (i32.const 65530) (i32.const 0x7fffffff)) (i32.const -1))
    (call $want (call $take (i32.const 2048) (i32.const 15)) (i32.const -1))
    (call $want (call $take (i32.const 2048) (i32.const 16)) (i32.const 16))
    (call $want (call $take (i32.const 2048) (i32.const 16)) (i32.const -1))
    ;; names and requests outside are malformed, and told with a text
    (call $want (i32.wrap_i64 (i64.shr_u (call $call (i32.const 65530) (i32.const 100) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) (i64.const 32))) (i32.const 5))
    (call $want (i32.wrap_i64 (i64.shr_u (call $call (i32.const 1024) (i32.const 6) (i32.const 0xffffffff) (i32.const 65537) (i32.const 0) (i32.const 0)) (i64.const 32))) (i32.const 5))))
