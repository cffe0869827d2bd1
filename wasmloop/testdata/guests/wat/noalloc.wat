;; Its allocator and its tool answer nothing, and its tool takes nothing.
(module (memory (export "memory") 1) (func (export "run"))
  (func (export "karmax_alloc") (param i32)) (func (export "tool")))
