(module (memory (export "memory") 1) (func (export "run"))
  (func (export "karmax_alloc") (param i32) (result i32) (i32.const 0x7fffffff))
  (func (export "tool") (param i32 i32) (result i64) (i64.const 0)))
