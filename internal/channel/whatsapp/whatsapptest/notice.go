package whatsapptest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf16"
)

// Notice is the body of a call of Meta's, in the making.
type Notice struct {
	PhoneID  string // PhoneID if ""
	Messages []json.RawMessage
	Statuses []json.RawMessage
	Names    map[string]string // of the people who wrote
}

// Text adds a message of somebody's.
func (n *Notice) Text(from, id, text string) *Notice {
	return n.add(from, id, "text", fmt.Sprintf(`"text":{"body":%s}`, marshal(text)))
}

// Reply adds a message that answers one of ours.
func (n *Notice) Reply(from, id, text, answered string) *Notice {
	return n.add(from, id, "text", fmt.Sprintf(`"context":{"from":%q,"id":%q},"text":{"body":%s}`, Number, answered, marshal(text)))
}

// Media adds an image or another attachment.
func (n *Notice) Media(from, id, kind, caption, file string) *Notice {
	return n.add(from, id, kind, fmt.Sprintf(`%q:{"caption":%s,"filename":%s,"mime_type":"x/y","sha256":"aGFzaA==","id":"2754859441498128"}`, kind, marshal(caption), marshal(file)))
}

// Press adds a press of a button of a message of ours.
func (n *Notice) Press(from, id, button, title, at string) *Notice {
	return n.add(from, id, "interactive", fmt.Sprintf(`"context":{"from":%q,"id":%q},"interactive":{"type":"button_reply","button_reply":{"id":%q,"title":%q}}`, Number, at, button, title))
}

// React adds a reaction to a message.
func (n *Notice) React(from, id, emoji, at string) *Notice {
	return n.add(from, id, "reaction", fmt.Sprintf(`"reaction":{"message_id":%q,"emoji":%s}`, at, marshal(emoji)))
}

// Raw adds a message by its type and its further fields.
func (n *Notice) Raw(from, id, kind, fields string) *Notice { return n.add(from, id, kind, fields) }

func (n *Notice) add(from, id, kind, fields string) *Notice {
	row := fmt.Sprintf(`{"from":%q,"id":%q,"timestamp":"%d","type":%q`, from, id, time.Now().Unix(), kind)
	if fields != "" {
		row += "," + fields
	}
	n.Messages = append(n.Messages, json.RawMessage(row+"}"))
	return n
}

// Status adds a report about a message of ours. code is of a failure, else 0.
func (n *Notice) Status(status, id, key string, code int) *Notice {
	row := fmt.Sprintf(`{"id":%q,"status":%q,"timestamp":"%d","recipient_id":"16505551234"`, id, status, time.Now().Unix())
	if key != "" {
		row += fmt.Sprintf(`,"biz_opaque_callback_data":%q`, key)
	}
	if code != 0 {
		row += fmt.Sprintf(`,"errors":[{"code":%d,"title":"Re-engagement message","message":"Re-engagement message","error_data":{"details":"More than 24 hours have passed."}}]`, code)
	}
	n.Statuses = append(n.Statuses, json.RawMessage(row+"}"))
	return n
}

// Body is the call's body as Meta writes it: what is not ASCII is escaped, and so are
// slashes, so that a body that was read and written again has another signature.
func (n *Notice) Body() []byte {
	phone := n.PhoneID
	if phone == "" {
		phone = PhoneID
	}
	var contacts []string
	for id, name := range n.Names {
		contacts = append(contacts, fmt.Sprintf(`{"profile":{"name":%s},"wa_id":%q}`, marshal(name), id))
	}
	value := fmt.Sprintf(`"messaging_product":"whatsapp","metadata":{"display_phone_number":%q,"phone_number_id":%q},"contacts":[%s]`, Number, phone, strings.Join(contacts, ","))
	if len(n.Messages) > 0 {
		value += `,"messages":[` + joined(n.Messages) + `]`
	}
	if len(n.Statuses) > 0 {
		value += `,"statuses":[` + joined(n.Statuses) + `]`
	}
	return escaped(`{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[{"value":{` + value + `},"field":"messages"}]}]}`)
}

func joined(rows []json.RawMessage) string {
	var all []string
	for _, r := range rows {
		all = append(all, string(r))
	}
	return strings.Join(all, ",")
}

func escaped(text string) []byte {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '/':
			b.WriteString(`\/`)
		case r < 0x80:
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return []byte(b.String())
}

// PostCloud makes a signed call of Meta's to a handler and returns its status.
func PostCloud(h http.Handler, body []byte) int {
	return serve(h, "X-Hub-Signature-256", Sign(AppSecret, body), body)
}

// PostCloudTo makes a signed call of Meta's to an address, once.
func PostCloudTo(client *http.Client, url string, body []byte) (int, error) {
	return post(client, url, "X-Hub-Signature-256", Sign(AppSecret, body), body)
}
