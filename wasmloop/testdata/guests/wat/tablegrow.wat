;; Takes entries of a table until there are no more, which is the bound, and then traps.
(module (memory (export "memory") 1) (table 1 funcref)
  (func (export "run") (loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 100000)) (i32.const -1))))
    (if (i32.gt_u (table.size 0) (i32.const 1048576)) (then (loop $l (br $l)))) unreachable))
