(module (memory (export "memory") 1) (func (export "run") (loop $l (br $l))))
