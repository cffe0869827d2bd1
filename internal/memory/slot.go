package memory

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// slotOf names what a fact says the value of, or returns "" if it is not known to
// be the kind of thing that has one value. Two facts with the same slot cannot
// both be true; the newer takes the older's place. The rule reads the words only:
//
//	<subject> is|are|ist|sind|lautet|=|: <value>
//
// where the subject has at most eight words, begins with none that refers to
// something else (it, he, what, if …) and the value is not denied (not, no …).
// Articles and my, our, your before the subject do not count. Then
//
//   - an attribute (the last word, or the one before "of", is code, number,
//     birthday …, or one word is favourite, or the verb is "=") has one value,
//     whatever it is: the slot is the subject;
//   - a value that begins with a number is replaced by one that differs in the
//     number only ("Anna is 40 years old", "Anna is 41 years old"), so those other
//     words are part of the slot;
//   - a role ("my dentist", "Anna's boss") is held by one name ("my dentist is Dr
//     Berg"), so a value with a capital replaces another one.
//
// Everything else is kept side by side: a fact lost is worse than two to choose
// from, which are told apart by their dates.
func slotOf(text string) string {
	words := strings.Fields(strings.TrimRight(text, ".! "))
	subject, value, strict := split(words)
	if len(subject) == 0 || len(value) == 0 || len(subject) > 8 {
		return ""
	}
	owned := ownedSubject(subject)
	subject = bare(subject)
	value = bareValue(value)
	if len(subject) == 0 || len(value) == 0 || slices.Contains(vague, subject[0]) || slices.Contains(denials, strings.ToLower(value[0])) {
		return ""
	}
	name := strings.Join(subject, " ")
	switch {
	case strict || attribute(subject):
		return name
	case startsWithDigit(value[0]):
		return name + " # " + strings.ToLower(strings.Join(value[1:], " "))
	case owned && capital(value[0]):
		return name + " @"
	}
	return ""
}

var (
	verbs    = []string{"is", "are", "ist", "sind", "lautet", "=", ":"}
	articles = []string{"the", "a", "an", "my", "our", "your", "der", "die", "das", "mein", "meine", "unser", "unsere"}
	owners   = []string{"the", "my", "our", "your", "der", "die", "das", "mein", "meine", "unser", "unsere"}
	vague    = []string{
		"i", "we", "you", "he", "she", "it", "they", "this", "that", "these", "those", "there", "here", "what", "who", "which",
		"where", "when", "why", "how", "if", "because", "one", "some", "all", "both", "es", "er", "sie", "wer", "was", "wo", "wenn", "dass",
	}
	denials = []string{"not", "no", "never", "nicht", "kein", "keine", "nie"}
	fillers = []string{"now", "currently", "actually", "called", "named", "jetzt"}

	attributes = []string{
		"address", "adresse", "age", "alter", "amount", "anniversary", "birthday", "birthdate", "budget", "code", "colour", "color",
		"combination", "date", "day", "deadline", "email", "e-mail", "geburtstag", "height", "iban", "id", "key", "kennwort",
		"language", "license", "limit", "location", "model", "name", "nickname", "number", "nummer", "passcode", "passphrase",
		"passwort", "password", "phone", "pin", "plate", "port", "postcode", "price", "quota", "size", "ssid", "temperature",
		"time", "timezone", "title", "url", "username", "version", "website", "weight", "zip", "zone",
	}
)

// split finds the verb. strict says it is a sign that assigns.
func split(words []string) (subject, value []string, strict bool) {
	for i, w := range words {
		switch {
		case slices.Contains(verbs, strings.ToLower(w)):
			return words[:i], words[i+1:], w == "="
		case i < 4 && len(w) > 1 && strings.HasSuffix(w, ":"):
			return append(slices.Clone(words[:i]), strings.TrimSuffix(w, ":")), words[i+1:], false
		}
		if left, right, ok := strings.Cut(w, "="); ok && left != "" && right != "" && !strings.Contains(w, "/") {
			return append(slices.Clone(words[:i]), left), append([]string{right}, words[i+1:]...), true
		}
	}
	return nil, nil, false
}

// bare is the subject as it is compared.
func bare(words []string) []string {
	out := make([]string, 0, len(words))
	for i, w := range words {
		w = strings.Trim(normal(w), `,"'()`)
		if w == "" || i == 0 && slices.Contains(articles, w) || w == "the" {
			continue
		}
		out = append(out, strings.ReplaceAll(w, "’", "'"))
	}
	return out
}

func bareValue(words []string) []string {
	for len(words) > 1 && slices.Contains(fillers, strings.ToLower(words[0])) {
		words = words[1:]
	}
	return words
}

func ownedSubject(words []string) bool {
	if slices.Contains(owners, strings.ToLower(words[0])) {
		return true
	}
	return slices.ContainsFunc(words, func(w string) bool {
		return strings.HasSuffix(w, "'s") || strings.HasSuffix(w, "’s") || strings.HasSuffix(w, "s'")
	})
}

func attribute(subject []string) bool {
	head := subject[len(subject)-1]
	if of := slices.IndexFunc(subject, func(w string) bool { return w == "of" || w == "for" || w == "von" || w == "für" }); of > 0 {
		head = subject[of-1]
	}
	return slices.Contains(attributes, head) ||
		slices.ContainsFunc(subject, func(w string) bool { return strings.HasPrefix(w, "favo") || strings.HasPrefix(w, "lieblings") })
}

func startsWithDigit(w string) bool {
	w = strings.TrimLeft(w, `"'(+-#€$£`)
	r, _ := utf8.DecodeRuneInString(w)
	return unicode.IsDigit(r)
}

func capital(w string) bool {
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, `"'(`))
	return unicode.IsUpper(r)
}
