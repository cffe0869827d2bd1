// Package fakeapi answers the model APIs that coding CLIs call, on the loopback
// interface and with no model behind them: Anthropic Messages, OpenAI Responses and
// chat completions, and Gemini generateContent, streamed and whole.
//
// A test begins a [Run] with a [Scenario], which decides what every request of that
// run is answered, and gives the run's URL and key to a CLI. Runs do not meet: the
// run is in the path, and each has a key of its own.
//
//	api := fakeapi.New(t)
//	run := api.Run(fakeapi.UseTool("^Read$", map[string]string{"file_path": file}))
//	// start a CLI with run.URL as its API and run.Key as its key
//	for _, turn := range run.Turns() { … }
//
// What a CLI sends is checked as the real APIs check it: 401 without the run's key,
// 400 for a body of the wrong shape, for tool calls that nobody answered and for
// answers nobody asked for. Fields that are not known are let pass, for CLIs send
// those of betas. Every request is kept, with what looks like a key taken out of its
// headers and its own key out of its body.
//
// Every answer costs 100 tokens that no cache had, 20 read from a cache, 10 written
// to one where the API tells that, and 7 out. Anthropic counts the 100 without the
// others, OpenAI and Gemini tell 100 with the 20 in it.
package fakeapi
