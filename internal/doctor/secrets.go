package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/destination"
)

// Secrets warns of signing secrets that have been in use for long, and of stored destinations that are in onefold.yaml
// too. How long one of the file has been in use is known since it first signed.
func Secrets(ctx context.Context, e Env) ([]Finding, error) {
	all, err := destination.New(destination.Opts{Config: e.Config}).List(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, d := range all {
		if len(d.Secrets) == 0 || !d.Secrets[0].Old { // the newest one counts
			continue
		}
		found = append(found, Finding{
			Level: Warn, Subject: "destination " + d.Name,
			Text: fmt.Sprintf("its signing secret has been in use for %d days", int(time.Since(d.Secrets[0].Since)/(24*time.Hour))),
			Fix:  "Rotate it: onefold destinations rotate " + d.Name + ", or for one of onefold.yaml a new secret_file and the old one as previous_secret_file.",
		})
	}
	return found, nil
}
