package e2e

import (
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

func TestMain(m *testing.M) { proc.Main(m) }
