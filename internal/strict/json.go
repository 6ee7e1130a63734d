package strict

import (
	"encoding/json"
	"strings"
)

// CheckJSON returns nil if data is exactly one JSON value; otherwise the error is a
// [*json.SyntaxError] that tells where it is not.
func CheckJSON(data []byte) error {
	if json.Valid(data) {
		return nil
	}
	var raw json.RawMessage
	return json.Unmarshal(data, &raw)
}

// KindOf returns the kind of a valid JSON value, which its first byte tells.
func KindOf(value string) Kind {
	switch value[0] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	}
	return Number
}

// A Member is a key of a JSON object, and its value as it is written.
type Member struct{ Key, Value string }

// Members returns the members of a valid JSON object in order. A map or a struct would hide
// a key that comes twice. The tokens of encoding/json show it, but each callout starts a
// process, where the first one sets up reflection: that takes ten times as long as this.
func Members(object string) []Member {
	elements := Elements(object)
	members := make([]Member, len(elements)/2)
	for i := range members {
		members[i] = Member{Unquote(elements[2*i]), elements[2*i+1]}
	}
	return members
}

// Elements returns the items of a valid JSON array, or the keys and values of an object, in
// order and as they are written.
func Elements(text string) []string {
	// Enough for most objects: each growth would touch a new page of memory.
	all := make([]string, 0, 16)
	depth, start := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += len(quoted(text[i:])) - 1
		case '{', '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case ',', ':', '}', ']':
			if depth == 1 {
				all = appendElement(all, text[start:i])
				start = i + 1
			}
			if text[i] == '}' || text[i] == ']' {
				depth--
			}
		}
	}
	return all
}

// appendElement leaves out what is between the brackets of {} and [].
func appendElement(all []string, element string) []string {
	if element = strings.Trim(element, " \t\r\n"); element == "" {
		return all
	}
	return append(all, element)
}

// quoted returns the string that begins a valid text.
func quoted(text string) string {
	end := 1
	for ; text[end] != '"'; end++ {
		if text[end] == '\\' {
			end++ // the byte after it may be a quote
		}
	}
	return text[:end+1]
}

// Unquote returns the text of a valid JSON string.
func Unquote(quoted string) string {
	if !strings.Contains(quoted, `\`) {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	_ = json.Unmarshal([]byte(quoted), &text) // it is valid
	return text
}
