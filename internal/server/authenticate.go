package server

import (
	"context"
	"errors"

	"github.com/danielgtaylor/huma/v2"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// authenticate lets a request on whose key has one of the scopes. It runs
// before parameters are checked and before the body is read.
func (s *Server) authenticate(scopes []api.Scope) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		x := exchangeFrom(hc.Context())
		if err := s.identify(hc.Context(), x, scopes); err != nil {
			if errors.Is(err, api.ErrUnauthorized) {
				telemetry.AuthFailed(telemetry.SideAPI, "")
			}
			s.fail(x, err)
			return
		}
		next(hc)
	}
}

func (s *Server) identify(ctx context.Context, x *exchange, scopes []api.Scope) error {
	lines := x.r.Header.Values("Authorization")
	if len(lines) > 1 {
		return api.Errorf(api.CodeUnauthorized, "there is more than one Authorization header").WithField("Authorization")
	}
	header := ""
	if len(lines) == 1 {
		header = lines[0]
	}
	who, err := s.Auth.Authenticate(ctx, header)
	if err != nil {
		return err
	}
	x.who = who
	for _, scope := range scopes {
		if err = who.Require(scope); err == nil {
			return nil
		}
	}
	return err
}
