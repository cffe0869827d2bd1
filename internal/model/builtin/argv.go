package builtin

import "strings"

// splitArgs cuts a command line into arguments. Quotes hold an argument together
// and a backslash takes the next character as it is; there are no other rules of
// a shell, because no shell runs. It reports false if a quote is left open.
func splitArgs(line string) ([]string, bool) {
	var args []string
	var arg strings.Builder
	started, escaped := false, false
	quote := rune(0)
	for _, r := range line {
		switch {
		case escaped:
			arg.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			started, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			arg.WriteRune(r)
		case r == '\'' || r == '"':
			started, quote = true, r
		case strings.ContainsRune(" \t\r\n", r):
			if started {
				args = append(args, arg.String())
				arg.Reset()
				started = false
			}
		default:
			arg.WriteRune(r)
			started = true
		}
	}
	if quote != 0 || escaped {
		return nil, false
	}
	if started {
		args = append(args, arg.String())
	}
	return args, true
}
