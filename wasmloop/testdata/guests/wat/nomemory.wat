(module (import "karmax" "call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
  (func (export "run") (drop (call $call (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))))
