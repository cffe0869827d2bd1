(module (memory (export "memory") 2000) (func (export "run")))
