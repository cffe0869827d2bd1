package wasmloop

import "slices"

// Host function names. A closed set: an unknown name is refused, not ignored, so a module
// built against a newer host fails visibly.
const (
	FnLog         = "log"
	FnRecall      = "recall"
	FnRemember    = "remember"
	FnNotify      = "notify"
	FnHTTP        = "http"
	FnTrigger     = "trigger"
	FnAsk         = "ask"
	FnConfig      = "config"
	FnHostTool    = "hosttool"
	FnHarness     = "harness"
	FnGateway     = "gateway"
	FnSummarize   = "summarize"
	FnPropose     = "propose"
	FnRemind      = "remind"
	FnTool        = "tool"
	FnShortSet    = "short_set"
	FnShortGet    = "short_get"
	FnShortAll    = "short_all"
	FnChatGet     = "chat_summary_get"
	FnChatSave    = "chat_summary_save"
	FnRunLoop     = "run_loop"
	FnShortForget = "short_forget"
	FnOperators   = "operator_chats"
)

// AllocExport is the guest's allocator, used to hand it a request.
const AllocExport = "karmax_alloc"

// ToolExport is the function a module exports to serve the tools it provides.
const ToolExport = "tool"

// reach says in plain English what a host function lets a loop do, "" for one that
// reaches nothing. What a function needs of the authority is in the capability it names.
var reach = map[string]string{
	FnLog:         "",
	FnTrigger:     "",
	FnConfig:      "read the settings you give it",
	FnHostTool:    "learn where helper programs are",
	FnOperators:   "learn which chats are yours",
	FnRecall:      "search your memory",
	FnRemember:    "write to your memory",
	FnNotify:      "send you notices",
	FnHTTP:        "make web requests, to the hosts it names",
	FnAsk:         "give your agent instructions; the agent then acts with all it may do itself",
	FnHarness:     "give a coding agent instructions; it then acts with all that a delegation may do",
	FnGateway:     "ask a model, at your cost",
	FnSummarize:   "have a model summarise, at your cost",
	FnPropose:     "propose actions for you to accept or refuse",
	FnRemind:      "set reminders for you",
	FnTool:        "call the tools it names",
	FnShortSet:    "keep notes of its own",
	FnShortGet:    "read notes of its own",
	FnShortAll:    "read notes of its own",
	FnShortForget: "delete notes of its own",
	FnChatGet:     "read stored summaries of your chats",
	FnChatSave:    "write stored summaries of your chats",
	FnRunLoop:     "start other loops",

	FnStepBegin:   "",
	FnStepEnd:     "",
	FnSleep:       "",
	FnAfter:       "start itself again later",
	FnCancelAfter: "",
	FnWaitSignal:  "wait for what you or others send to its run",
	FnFence:       "",
	FnWrite:       "",
	FnProgress:    "",
}

// UnknownHostFunctions reports which of a manifest's declared host functions this host
// does not have. A signature proves that an artifact is intact, not that it fits: a loop
// built against another ABI verifies, installs, and is refused at its first real call.
// This says so before.
func UnknownHostFunctions(declared []string) (unknown []string) {
	for _, name := range declared {
		if _, known := reach[name]; !known && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
