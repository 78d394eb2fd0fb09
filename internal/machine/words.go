package machine

import (
	"errors"
	"strings"
)

// splitWords splits text into words as a shell does: at white space, with '…', "…" and \ to keep
// characters as they are. It expands nothing.
func splitWords(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune  // ' or " inside quotes, \ after a backslash, 0 outside
	var inside rune // the quote in which the backslash stands
	begun := false
	for _, r := range text {
		switch {
		case quote == '\\':
			// In double quotes a backslash quotes only special characters.
			if inside == '"' && !strings.ContainsRune("\"\\$`", r) {
				word.WriteRune('\\')
			}
			word.WriteRune(r)
			quote = inside
		case r == '\\' && quote != '\'':
			inside, quote, begun = quote, r, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	switch {
	case quote == '\\':
		return nil, errors.New("there is nothing after the last backslash")
	case quote != 0:
		return nil, errors.New("a quote " + string(quote) + " is not closed")
	case begun:
		words = append(words, word.String())
	}
	return words, nil
}

// joinWords is the inverse of splitWords.
func joinWords(words []string) string {
	var quoted []string
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\r\n'\"\\$`*?[]{}()<>|&;#~!") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted = append(quoted, w)
	}
	return strings.Join(quoted, " ")
}
