package httpcall_test

import (
	"encoding/json"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/httpcall"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

type object = map[string]any

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Wire(t, providertest.Dialect{
		New: func(url string, key func() string, o *wire.Opts) (provider.Provider, error) {
			return httpcall.New(httpcall.Opts{BaseURL: url, Key: key, AllowPrivate: true, Wire: o})
		},
		Body:  func(text string) []byte { return encode(object{"text": text}) },
		Whole: func(text string) []byte { return encode(object{"result": text}) },
		Error: func(message, code string) []byte {
			return encode(object{"error": object{"message": message, "code": code}})
		},
		AuthHeader: "Authorization", AuthPrefix: "Bearer ", QuotaWord: "quota_exhausted", RateWord: "rate_limited",
	})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
