package roce_test

import (
	"os"
	"testing"

	"github.com/goroce/roce/internal/scenario"
)

// TestMain fails if examples leave goroutines of this module behind.
func TestMain(m *testing.M) { os.Exit(scenario.Run(m)) }
