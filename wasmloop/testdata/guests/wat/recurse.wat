(module (memory (export "memory") 1) (func $f (export "run") (call $f)))
