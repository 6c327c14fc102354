package server

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// storable says whether text could stand in the database at all.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// printable makes a caller's name safe to show.
func printable(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "..."
	}
	q := strconv.QuoteToASCII(name)
	return q[1 : len(q)-1]
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func hexOf(b []byte) string { return hex.EncodeToString(b) }
