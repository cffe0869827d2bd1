;; Spins before it is asked anything.
(module (memory (export "memory") 1) (func $l (loop $l (br $l))) (start $l) (func (export "run")))
