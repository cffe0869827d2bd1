package builtin

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// verb is one row of the table: what help prints, and how its phrases are read.
type verb struct {
	usage, about string
	phrases      []phrase
}

// phrase is one way to say a verb. act gets the groups of the match; it reports
// false if the phrase was meant in another way, and the next one is tried.
type phrase struct {
	re  *regexp.Regexp
	act func(b *Interpreter, m []string) (action, bool)
}

// on compiles a phrase: the whole message, any case, any space between words.
func on(pattern string, act func(b *Interpreter, m []string) (action, bool)) phrase {
	return phrase{regexp.MustCompile(`(?is)^` + strings.ReplaceAll(pattern, " ", `\s+`) + `$`), act}
}

// always is for a phrase that has one meaning.
func always(a action) func(*Interpreter, []string) (action, bool) {
	return func(*Interpreter, []string) (action, bool) { return a, true }
}

const (
	file   = `("[^"]+"|'[^']+'|\S*[./]\S*)`    // looks like a file
	anyArg = `("[^"]+"|'[^']+'|\S+)`           // is said to be one
	isWord = `(?:['’]s|s| is| are| was| were)` // what's, whats, what is
	endQ   = `[\s.!?]*`                        // how a short message may end
	noteOf = `(?:remember|memori[sz]e|note to self|note|save|store|keep in mind|bear in mind|(?:take|make) a note|write down|jot down|don['’]?t (?:ever )?forget|do not forget|never forget|fyi|for the record)`
)

// table returns the verbs. Their order is the order in which phrases are tried:
// the narrow ones first.
func table() []verb {
	return []verb{
		{"help", "say what I am and what I can do", []phrase{
			on(`(?:help|\?|commands?|usage|what can (?:you|i) (?:do|say)(?: here)?|who are you|what are you|how do(?:es)? (?:you|this|it) work)`+endQ, func(b *Interpreter, _ []string) (action, bool) { return say("%s", help(b.verbs())), true }),
			on(`(?:hi|hello|hey|hej|good (?:morning|afternoon|evening)|greetings)(?: there)?`+endQ, always(say("Hello. I am the builtin interpreter; say help to see what I understand."))),
			on(`(?:thanks|thank you|thx|cheers|ok|okay|great|never ?mind)(?: (?:a lot|very much))?`+endQ, always(say("All right."))),
		}},
		{"call TOOL {JSON}", "call any tool this agent has", []phrase{on(`call(?: the)?(?: tool)? ([\w.-]+)\s*(.*)`, callTool)}},
		{"time [ZONE]", "tell the time", []phrase{
			on(`(?:what(?:['’]?s| is) )?(?:the )?(?:current )?(?:time|date)(?: (?:is it|now))*(?: (?:in |at )?([a-z_]+(?:/[a-z_]+)*))?`+endQ, timeNow),
			on(`(?:do you know )?what (?:time|day|date)(?: of the week)? (?:is it|it is|is today|do we have)(?: (?:now|today))?(?: in ([a-z_]+(?:/[a-z_]+)*))?`+endQ, timeNow),
			on(`what(?:['’]?s| is) today(?:['’]s date)?()`+endQ, timeNow),
		}},
		{"remind me to TEXT in 5 minutes | at 17:00 | tomorrow at 9", "set a reminder; also: list reminders, cancel reminder ID", []phrase{
			on(`(?:(?:list|show)(?: me)?(?: all)?(?: my| the)? (?:reminders|timers)|(?:what|which)(?: are my)? (?:reminders|timers)(?: .*)?|(?:my )?reminders)`+endQ, always(call("remind.list", noInput{}))),
			on(`(?:cancel|delete|remove|stop|clear)(?: the| my)? (?:reminder|timer)(?: about| to| for| with the id| number)? (.+)`, func(_ *Interpreter, m []string) (action, bool) {
				return call("remind.cancel", idInput{ID: bare(m[1])}), true
			}),
			on(`remind me (?:of |about )?(?:what|who|where|when|how) (.+)`, recallRest),
			on(`remind me[,:]? (.+)`, remindMe),
			on(`(?:set|create|add|make)(?: me)?(?: a| an)? (?:reminder|alarm)[,:]? (.+)`, remindMe),
			on(`(?:set|start)(?: me)?(?: a| an)? timer[,:]? (.+)`, remindTimer),
			on(`(`+relative+`|`+absolute+`)[,:]? remind me(?: to| that| about| of)?[,:]? (.+)`, func(b *Interpreter, m []string) (action, bool) { return b.remind(m[1], m[2]), true }),
			on(`wake me(?: up)? (.+)`, remindTimer),
			on(`(?:don['’]?t|do not) (?:let me )?forget to (.+)`, remindIfTimed),
		}},
		{"write FILE: TEXT", "write a file in the workspace", []phrase{
			on(`(?:write|save|create|put|make)(?: a| the| to| into| in)*(?: file)?(?: called| named)? `+file+`\s*:\s*(.*)`, write(1, 2)),
			on(`(?:write|save|create|make)(?: a| the| to)*(?: file)?(?: called| named)? `+file+`,? (?:with|saying|containing)(?: the)?(?: text| content)?s?:? (.+)`, write(1, 2)),
			on(`(?:write|save|put) (.+) (?:to|into|in)(?: the)?(?: file)? `+file+endQ, write(2, 1)),
		}},
		{"forget TEXT", "forget a fact; also: forget what I just said", []phrase{
			on(`(?:forget|scratch|undo|unremember|discard)(?: about)? (?:what i(?: have|['’]ve)?(?: just| last)? (?:said|told you)|that|it|this|the last (?:one|thing|fact)(?: i said)?|last)`+endQ, always(call("memory.forget", lastInput{Last: true}))),
			on(`(?:undo|scratch that)`+endQ, always(call("memory.forget", lastInput{Last: true}))),
			on(`(?:forget|unremember) (?:everything|all(?: of it)?|it all)`+endQ, always(say("I forget one thing at a time: say what. Nothing was forgotten."))),
			on(`(?:forget|unremember)(?: about)?(?: that| what)?[,:]? (.+)`, forget),
			on(`(?:delete|remove|erase|drop|clear)(?: the fact)?(?: that)? (.+) from (?:your |my |the )?memory`+endQ, forget),
		}},
		{"remember TEXT", "keep a fact", []phrase{
			on(`(?:do|can|could) you (?:still )?remember (.+\?)\s*`, recallUnlessThat),
			on(noteOf+`(?: (?:down|this|for me))*(?: that\b)?\s*[,:-]?\s+(.+)`, remember),
			on(`(?:remember|memori[sz]e|note)`+endQ, always(say("What shall I remember? Say for example: remember that the boiler code is 4711."))),
		}},
		{"run PROGRAM [ARGUMENTS]", "run a program that is allowed, without a shell", []phrase{
			on(`(?:run|exec|execute)(?: the)?(?: command| program)?[,:]? (.+)`, run),
			on(`[$!]\s*(.+)`, run),
		}},
		{"fetch URL", "get a web page as text", []phrase{
			on(`(?:fetch|get|download|open|visit|browse(?: to)?|curl|read|show(?: me)?|load)(?: me)?(?: the)?(?: web)?(?: ?page| ?site| url| address)?(?: at| from)? (https?://\S+)`+`\s*`, fetch),
			on(`(?:fetch|visit|browse(?: to)?|curl)(?: me)?(?: the)?(?: page| site| url)? ([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?:[:/]\S*)?)\s*`, fetch),
			on(`(https?://\S+)\s*`, fetch),
		}},
		{"delete FILE", "delete a file of the workspace", []phrase{
			on(`(?:delete|remove|rm|erase)(?: the)? file `+anyArg+endQ, onFile("fs.delete")),
			on(`(?:delete|remove|rm|erase)(?: the)? `+file+`\s*`, onFile("fs.delete")),
		}},
		{"list [DIRECTORY]", "list files of the workspace", []phrase{
			on(`(?:list|ls|dir|show)(?: me)?(?: all)?(?: the| my| your)?(?: files| directory| folder| workspace)?()`+endQ, list),
			on(`(?:what|which) files(?: (?:are there|do (?:you|i|we) have|exist|are here|are in the workspace))?()`+endQ, list),
			on(`(?:list|ls|dir|show)(?: me)?(?: all)?(?: the)?(?: files| directory| folder)?(?: in| of| under)?(?: the)?(?: directory| folder)? `+anyArg+`\s*`, list),
			on(`(?:what|which) files are in(?: the)?(?: directory| folder)? `+anyArg+endQ, list),
		}},
		{"read FILE", "show a file of the workspace", []phrase{
			on(`(?:read|show|open|cat|print|display|type)(?: me)?(?: the)?(?: contents? of)?(?: the)? file `+anyArg+endQ, onFile("fs.read")),
			on(`(?:read|cat)(?: me)?(?: the)? `+anyArg+`\s*`, onFile("fs.read")),
			on(`(?:read|show|open|print|display)(?: me)?(?: the)?(?: contents? of)? `+file+`\s*`, onFile("fs.read")),
			on(`what(?:['’]?s| is)(?: there)? in(?: the)?(?: file)? `+file+`\s*`, onFile("fs.read")),
		}},
		{"recall TEXT | what is TEXT?", "find what you told me", []phrase{
			on(`(?:recall|look up|search(?: my| your)?(?: memory)?(?: for)?|find|what do (?:you|we|i) know(?: about| of)?|what have i told you(?: about)?|what did i (?:say|tell you)(?: about)?|tell me(?: about)?(?: what| who| where| when)?`+`)[,:]? (.+)`, recallRest),
			on(`(?:do|can|could) you (?:still )?(?:know|remember|recall|tell me)(?: what| who| where| when)?(?:['’]s)? (.+)`, recallRest),
			on(`(?:i (?:have )?(?:forgot|forgotten|don['’]?t (?:know|remember)|can['’]?t (?:remember|recall))|any idea|have you (?:got|noted))(?: what| who| where| when)?(?:['’]s)?(?: about)? (.+)`, recallRest),
			on(`(?:what|who|where|when|which)`+isWord+` (.+)`, recallRest),
			on(`(.+\?)\s*`, recallRest),
		}},
	}
}

// polite is what may stand before a wish without changing it.
var polite = regexp.MustCompile(`(?is)^(?:(?:please|pls|kindly|hey|hi|hello|okay|ok|so|well|ombud|i want you to|i['’]?d like you to|i need you to|could you please|can you please|would you please|will you please|just)\b[,:!.]?\s+|(?:could|can|would|will) you\s+)`)

var courtesy = regexp.MustCompile(`(?is)[\s,]*\b(?:please|pls|thanks|thank you)[.!]*$`)

// understand returns what to do about a message.
func (b *Interpreter) understand(text string) action {
	text = strings.TrimSpace(text)
	if text == "" {
		return say("That was empty. %s", hint)
	}
	for _, form := range forms(text) {
		for _, v := range b.verbs() {
			for _, p := range v.phrases {
				if m := p.re.FindStringSubmatch(form); m != nil {
					if a, ok := p.act(b, m); ok {
						return a
					}
				}
			}
		}
	}
	return say("I do not understand that, and did nothing. %s", hint)
}

// forms returns the ways to read a message, the plainest first: without polite
// words before it, then without those behind it. Where politeness makes the
// question it stays: "can you remember X?" is not "remember X?".
func forms(text string) []string {
	if asksMemory.MatchString(text) {
		return []string{text}
	}
	plain := text
	for range 4 {
		plain = polite.ReplaceAllString(plain, "")
	}
	out := []string{plain, courtesy.ReplaceAllString(plain, "")}
	if plain != text {
		out = append(out, text)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

var asksMemory = regexp.MustCompile(`(?is)^(?:do|can|could) you (?:still )?(?:remember|recall|know|tell me)\b.*\?\s*$`)

const hint = "I am the builtin interpreter, not a language model: say help to see what I understand."

func help(verbs []verb) string {
	var b strings.Builder
	b.WriteString("I am ombud's builtin interpreter, not a language model. I understand:\n")
	for _, v := range verbs {
		b.WriteString("  " + v.usage + "\n      " + v.about + "\n")
	}
	b.WriteString("To use a language model, set ANTHROPIC_API_KEY or OPENAI_API_KEY or run Ollama, and restart the daemon; `ombud status` says which one is used and why.")
	return b.String()
}

// bare returns a name or query without quotes, courtesy and closing marks.
func bare(s string) string {
	s = courtesy.ReplaceAllString(strings.TrimSpace(s), "")
	s = strings.TrimRight(s, " \t\r\n?!")
	if strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "..") && len(s) > 1 {
		s = strings.TrimRight(s[:len(s)-1], " ")
	}
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'' || s[0] == '`') && s[len(s)-1] == s[0] {
		s = s[1 : len(s)-1]
	}
	return strings.TrimSpace(s)
}

var articles = regexp.MustCompile(`(?is)^(?:the|a|an|my|our|your|is|are|that|about)\s+`)
var endVerb = regexp.MustCompile(`(?is)\s+(?:is|are|was|were)$`)

// subject returns what a question or a wish to forget is about.
func subject(s string) string {
	s = endVerb.ReplaceAllString(bare(s), "")
	for {
		rest := articles.ReplaceAllString(s, "")
		if rest == s || rest == "" {
			return s
		}
		s = rest
	}
}

func recallRest(_ *Interpreter, m []string) (action, bool) {
	q := subject(m[1])
	if q == "" {
		return action{}, false
	}
	return call("memory.recall", queryInput{Query: q}), true
}

// recallUnlessThat reads "can you remember the code?" as a question and "can you
// remember that the code is 4711?" as a wish.
func recallUnlessThat(b *Interpreter, m []string) (action, bool) {
	if strings.HasPrefix(strings.ToLower(m[1]), "that ") {
		return remember(b, []string{"", strings.TrimRight(m[1][len("that "):], " ?")})
	}
	return recallRest(b, m)
}

func forget(_ *Interpreter, m []string) (action, bool) {
	q := subject(m[1])
	if q == "" {
		return action{}, false
	}
	return call("memory.forget", queryInput{Query: q}), true
}

func remember(b *Interpreter, m []string) (action, bool) {
	text := strings.TrimSpace(courtesy.ReplaceAllString(m[1], ""))
	if strings.HasSuffix(text, "?") { // "remember the boiler code?" asks
		return recallRest(b, m)
	}
	if text == "" {
		return action{}, false
	}
	return call("memory.remember", textInput{Text: text}), true
}

func (b *Interpreter) remind(words, text string) action {
	m, problem := parseWhen(words, b.now())
	text = strings.TrimSpace(courtesy.ReplaceAllString(text, ""))
	switch {
	case problem != "":
		return say("I cannot remind you %s: %s. Nothing was set.", strings.TrimSpace(words), problem)
	case text == "":
		return say("What shall I remind you of %s? Nothing was set.", strings.TrimSpace(words))
	}
	return m.set(text)
}

func remindMe(b *Interpreter, m []string) (action, bool) {
	words, rest, ok := splitWhen(courtesy.ReplaceAllString(m[1], ""))
	if !ok {
		return say("When shall I remind you? Say for example: remind me to %s in 5 minutes, at 17:00, or tomorrow at 9. Nothing was set.", strings.TrimPrefix(bare(rest), "to ")), true
	}
	return b.remind(words, rest), true
}

// remindTimer is for what needs no text.
func remindTimer(b *Interpreter, m []string) (action, bool) {
	text := strings.TrimPrefix(strings.TrimSpace(courtesy.ReplaceAllString(m[1], "")), "for ")
	words, rest, ok := splitWhen(text)
	if !ok {
		if words, rest, ok = splitWhen("in " + text); !ok {
			return action{}, false
		}
	}
	if rest == "" {
		rest = bare(m[0])
	}
	return b.remind(words, rest), true
}

// remindIfTimed reads "don't forget to X at 5" as a reminder; without a time it is
// something to remember.
func remindIfTimed(b *Interpreter, m []string) (action, bool) {
	words, rest, ok := splitWhen(courtesy.ReplaceAllString(m[1], ""))
	if !ok || rest == "" {
		return action{}, false
	}
	return b.remind(words, rest), true
}

func timeNow(_ *Interpreter, m []string) (action, bool) {
	zone := m[1]
	switch strings.ToLower(zone) {
	case "now", "today", "please", "is", "it":
		zone = ""
	}
	return call("time.now", zoneInput{Zone: zone}), true
}

func callTool(_ *Interpreter, m []string) (action, bool) {
	input := strings.TrimSpace(m[2])
	if !strings.Contains(m[1], ".") && !strings.HasPrefix(input, "{") { // "call mum" is no tool
		return action{}, false
	}
	if input == "" {
		input = "{}"
	}
	if !json.Valid([]byte(input)) || input[0] != '{' {
		return say("The input of %s must be a JSON object, such as call time.now {\"zone\": \"UTC\"}. Nothing was called.", m[1]), true
	}
	return action{tool: m[1], input: json.RawMessage(input)}, true
}

func run(_ *Interpreter, m []string) (action, bool) {
	line := strings.TrimSpace(m[1])
	if len(line) > 1 && line[0] == '`' && line[len(line)-1] == '`' {
		line = line[1 : len(line)-1]
	}
	argv, ok := splitArgs(line)
	if !ok {
		return say("A quote in that command is not closed. Nothing was run."), true
	}
	if len(argv) == 0 || argv[0] == "" {
		return action{}, false
	}
	return call("shell.exec", argvInput{Argv: argv}), true
}

func fetch(_ *Interpreter, m []string) (action, bool) {
	url := strings.TrimRight(m[1], ".,;!")
	if !strings.Contains(url, "://") {
		url = "https://" + url
	}
	return call("web.fetch", urlInput{URL: url}), true
}

// write returns the action for a phrase whose groups are the path and the text.
func write(path, text int) func(*Interpreter, []string) (action, bool) {
	return func(_ *Interpreter, m []string) (action, bool) {
		name, content := bare(m[path]), m[text]
		if name == "" || strings.Contains(name, "://") {
			return action{}, false
		}
		if path > text || len(content) > 1 && content[0] == '"' && content[len(content)-1] == '"' {
			content = bare(content)
		}
		return call("fs.write", writeInput{Path: name, Content: content}), true
	}
}

func onFile(tool string) func(*Interpreter, []string) (action, bool) {
	return func(_ *Interpreter, m []string) (action, bool) {
		name := bare(m[1])
		if name == "" || strings.Contains(name, "://") {
			return action{}, false
		}
		return call(tool, pathInput{Path: name}), true
	}
}

func list(_ *Interpreter, m []string) (action, bool) {
	dir := bare(m[1])
	switch dir {
	case "":
		dir = "."
	case "reminders", "timers":
		return action{}, false
	}
	return call("fs.list", pathInput{Path: dir}), true
}
