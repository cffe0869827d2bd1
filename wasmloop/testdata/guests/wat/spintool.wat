(module (memory (export "memory") 1) (func (export "run"))
  (func (export "karmax_alloc") (param i32) (result i32) (loop $l (br $l)) unreachable)
  (func (export "tool") (param i32 i32) (result i64) (i64.const 0)))
