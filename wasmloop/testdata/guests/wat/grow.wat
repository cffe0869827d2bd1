;; Takes memory until there is no more, then traps.
(module (memory (export "memory") 1)
  (func (export "run") (loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable))
