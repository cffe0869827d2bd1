;; 0x10000001 events of 48 bytes are 48 bytes, if 32 bits is all one counts with.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (drop (call $poll (i32.const 0) (i32.const 4096) (i32.const 0x10000001) (i32.const 8192)))))
