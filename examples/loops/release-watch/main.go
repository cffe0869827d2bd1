// Command release-watch is a loop that tells of new releases of projects on GitHub.
//
// Each half hour it looks at one of them, as the clock says. ombud asks a person before a
// run that has read what others wrote makes another request, so a run makes one, and reads
// its notes, which may hold others' words as well, only behind it.
//
// Settings: repos, as owner/name with spaces between; summary=off for the bare news, at no
// cost; token=yes to send the secret github-token with each request, where 60 an hour for
// all of this address are too few.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
)

func init() { loop.Main(run) }

func main() {}

type settings struct {
	repos   []string
	summary bool
	token   bool
}

func run(k *loop.Kit) error {
	set, err := read(k)
	if err != nil {
		return err
	}
	at := turn(k.Now(), len(set.repos))
	repo := set.repos[at]
	k.Progress(repo, at, len(set.repos))
	if err := look(k, set, repo); err != nil {
		return fmt.Errorf("%s: %w", repo, err)
	}
	return nil
}

// every is how far apart loop.yaml has the runs.
const every = 30 * time.Minute

// turn says which of n is looked at now. It is told by the clock and not by a note: a note
// would have to be read before the request.
func turn(now time.Time, n int) int { return int(now.Unix() / int64(every/time.Second) % int64(n)) }

var repoForm = regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$`)

func read(k *loop.Kit) (set settings, err error) {
	var text [3]string
	for n, key := range []string{"repos", "summary", "token"} {
		if text[n], err = k.Config(key); err != nil {
			return set, err
		}
	}
	set = settings{strings.Fields(strings.ReplaceAll(text[0], ",", " ")), text[1] != "off", text[2] == "yes"}
	if len(set.repos) == 0 {
		return set, errors.New("no repos are set: ombud loop set release-watch repos=\"golang/go nodejs/node\"")
	}
	for _, repo := range set.repos {
		if !repoForm.MatchString(repo) {
			return set, fmt.Errorf("%q of the setting repos is not owner/name", repo)
		}
	}
	return set, nil
}

type release struct {
	Tag  string `json:"tag_name"`
	Name string `json:"name"`
	Page string `json:"html_url"`
	Body string `json:"body"`
}

// look tells of the latest release of a project if it is another one than the last time.
func look(k *loop.Kit, set settings, repo string) error {
	r, err := fetch(k, set, repo)
	if err != nil || r.Tag == "" {
		return err
	}
	last, known, err := k.Kept("seen", repo)
	if err != nil || last == r.Tag {
		return err
	}
	if known { // the first look only notes what there is
		text := r.Page
		if set.summary && strings.TrimSpace(r.Body) != "" {
			said, err := summary(k, repo, r)
			if err != nil {
				return err
			}
			text = said + "\n" + text
		}
		if err := k.Notify(repo+" "+r.Tag, text); err != nil {
			return err
		}
	}
	return k.Keep("seen", repo, r.Tag, 0)
}

// maxNotes is how much of the notes of a release is read: a request has at most 64 KiB.
const maxNotes = 20_000

func summary(k *loop.Kit, repo string, r release) (string, error) {
	body := r.Body
	if len(body) > maxNotes {
		body = strings.ToValidUTF8(body[:maxNotes], "")
	}
	notes, err := k.Fence(body, "the release notes of "+repo)
	if err != nil {
		return "", err
	}
	return k.Summarize("Say in at most three plain sentences what is new in " + repo + " " + r.Tag + " for somebody who uses it. " +
		"Name what breaks first.\n\n" + notes)
}

// fetch asks for the latest release. Where GitHub has had enough, or is in trouble, it is
// asked the next time it is the project's turn: the answer to a second request of this run
// would have to wait for a person.
func fetch(k *loop.Kit, set settings, repo string) (r release, err error) {
	req := loop.Request{
		URL:     "https://api.github.com/repos/" + repo + "/releases/latest",
		Headers: map[string]string{"Accept": "application/vnd.github+json"},
	}
	if set.token {
		req.Headers["Authorization"] = "Bearer {{secret:github-token}}"
	}
	resp, err := k.HTTP(req)
	switch {
	case err != nil:
		return r, err
	case resp.Status == 200:
		return r, json.Unmarshal([]byte(resp.Body), &r)
	case resp.Status == 404:
		k.Log(loop.Warn, "there is no such project, or it has no release", "repo", repo)
		return r, nil
	case resp.Status == 403, resp.Status == 429, resp.Status >= 500:
		k.Log(loop.Warn, fmt.Sprintf("GitHub answers %d; another time", resp.Status), "repo", repo)
		return r, nil
	}
	return r, fmt.Errorf("GitHub answers %d", resp.Status)
}
