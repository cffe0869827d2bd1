;; Its tool answers with more than there is, and with more than is taken.
(module (memory (export "memory") 80) (global $n (mut i32) (i32.const 0)) (func (export "run"))
  (func (export "karmax_alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "tool") (param i32 i32) (result i64) (i64.const 0x0000000000400001)))
