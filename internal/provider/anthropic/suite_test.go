package anthropic_test

import (
	"encoding/json"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/anthropic"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

type object = map[string]any

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Wire(t, providertest.Dialect{
		New: func(url string, key func() string, o *wire.Opts) (provider.Provider, error) {
			return anthropic.New(anthropic.Opts{BaseURL: url, Key: key, Wire: o})
		},
		Body: func(text string) []byte {
			return encode(object{"model": "m", "max_tokens": 10, "messages": []any{object{"role": "user", "content": text}}})
		},
		Whole: func(text string) []byte {
			return encode(object{
				"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
				"content": []any{object{"type": "text", "text": text}}, "usage": object{"input_tokens": 3, "output_tokens": 2},
			})
		},
		Tokens: func(tokens ...string) (parts [][]byte) {
			for i, token := range tokens {
				part := event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": token}})
				if i == 0 {
					part = append(start(), part...)
				}
				parts = append(parts, part)
			}
			return parts
		},
		Terminal: append(event("message_delta", object{
			"delta": object{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": object{"output_tokens": 2},
		}), event("message_stop", object{})...),
		Error: func(message, code string) []byte {
			if code == "" {
				code = "invalid_request_error"
			}
			return encode(object{"type": "error", "error": object{"type": code, "message": message}, "request_id": "r"})
		},
		AuthHeader: "X-Api-Key", QuotaWord: "billing_error", RateWord: "rate_limit_error",
	})
}

// start is how a stream begins, pings among it.
func start() []byte {
	b := event("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []any{}, "stop_reason": nil,
		"usage": object{"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1},
	}})
	b = append(b, event("ping", object{})...)
	return append(b, event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})...)
}

func event(name string, v object) []byte {
	v["type"] = name
	return []byte("event: " + name + "\ndata: " + string(encode(v)) + "\n\n")
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
