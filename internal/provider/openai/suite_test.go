package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Wire(t, providertest.Dialect{
		New: func(url string, key func() string, o *wire.Opts) (provider.Provider, error) {
			return openai.New(openai.Opts{BaseURL: url, Key: key, Wire: o})
		},
		Body: func(text string) []byte {
			return encode(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": text}}})
		},
		Whole: func(text string) []byte {
			return encode(map[string]any{"id": "x", "choices": []any{map[string]any{
				"index": 0, "message": map[string]any{"role": "assistant", "content": text}, "finish_reason": "stop",
			}}})
		},
		Tokens: func(tokens ...string) (parts [][]byte) {
			for _, token := range tokens {
				parts = append(parts, event(map[string]any{"id": "x", "choices": []any{map[string]any{
					"index": 0, "delta": map[string]any{"content": token}, "finish_reason": nil,
				}}}))
			}
			return parts
		},
		Terminal: append(event(map[string]any{"id": "x", "choices": []any{map[string]any{
			"index": 0, "delta": map[string]any{}, "finish_reason": "stop",
		}}}), "data: [DONE]\n\n"...),
		Error: func(message, code string) []byte {
			e := map[string]any{"message": message, "type": "invalid_request_error", "code": nil}
			if code != "" {
				e["code"] = code
			}
			return encode(map[string]any{"error": e})
		},
		AuthHeader: "Authorization", AuthPrefix: "Bearer ", QuotaWord: "insufficient_quota", RateWord: "rate_limit_exceeded",
	})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func event(v any) []byte { return []byte("data: " + string(encode(v)) + "\n\n") }
