;; Waits in ways that lie: for more events than there is memory, counted so that their
;; length wraps around, outside of the memory, and then for input that never comes.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run")
    (drop (call $poll (i32.const 65530) (i32.const 0) (i32.const 1) (i32.const 0)))
    (drop (call $poll (i32.const 0) (i32.const 65530) (i32.const 1) (i32.const 0)))
    (drop (call $poll (i32.const 0) (i32.const 4096) (i32.const 1) (i32.const 0xfffffff0)))
    (drop (call $poll (i32.const 0) (i32.const 4096) (i32.const 0) (i32.const 0)))
    (i32.store8 (i32.const 8) (i32.const 1)) ;; input of 0
    (drop (call $poll (i32.const 0) (i32.const 4096) (i32.const 1) (i32.const 8192)))))
