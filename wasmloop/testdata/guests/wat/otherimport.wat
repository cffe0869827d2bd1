(module (import "karmax" "call" (func (param i32) (result i32))) (memory (export "memory") 1) (func (export "run")))
