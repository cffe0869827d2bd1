;; Its allocator and its tool answer with places that are not its own.
(module (memory (export "memory") 1) (func (export "run"))
  (func (export "karmax_alloc") (param i32) (result i32) (i32.const 0))
  (func (export "tool") (param i32 i32) (result i64) (i64.const 0x0000fff000010000)))
