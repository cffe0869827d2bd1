(module (memory (export "memory") 1) (func $t unreachable) (start $t) (func (export "run")))
