(module (import "wasi_snapshot_preview1" "fork" (func (result i32))) (memory (export "memory") 1) (func (export "run")))
