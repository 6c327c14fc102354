package canon

import (
	"bytes"
	"strconv"
)

const (
	// MaxExponent bounds the decimal exponent of a number, as it is written
	// and after its zeros have been moved into it.
	MaxExponent = 999_999
	// MaxNumberBytes bounds the length of one number as it is written. It is
	// far beyond any amount or identifier, and below what the readers of a
	// stored input refuse (Python stops at 4,300 digits).
	MaxNumberBytes = 4096

	maxExponentDigits = 6
)

// number reads a number and writes it as an exact decimal: digits without
// leading or trailing zeros, then an exponent where it is not zero. Nothing is
// ever rounded or expanded, so 1e999999 costs no more than 1.
func (s *scanner) number() *Error {
	start := s.pos
	negative := s.raw[s.pos] == '-'
	if negative {
		s.pos++
	}
	whole, err := s.whole()
	if err != nil {
		return err
	}
	var fraction []byte
	if s.pos < len(s.raw) && s.raw[s.pos] == '.' {
		s.pos++
		if fraction, err = s.digits(); err != nil {
			return err
		}
	}
	exponent, err := s.exponent(start)
	if err != nil {
		return err
	}
	if s.pos-start > MaxNumberBytes {
		return outOfRange(start, "a number is too long")
	}
	exponent -= len(fraction)
	whole, fraction, exponent = trimZeros(whole, fraction, exponent)
	if len(whole)+len(fraction) == 0 {
		s.put('0')
		return nil
	}
	if exponent > MaxExponent || exponent < -MaxExponent {
		return outOfRange(start, "the exponent of a number is too large")
	}
	if s.keep {
		s.text = appendNumber(s.text, negative, whole, fraction, exponent)
	}
	return nil
}

func outOfRange(at int, message string) *Error {
	return failure(CodeNumberOutOfRange, at, message,
		"Use exponents of at most 6 digits and at most 4096 characters a number; send longer ones as strings.")
}

// whole reads the digits before the point, which never start with a needless
// zero.
func (s *scanner) whole() ([]byte, *Error) {
	digits, err := s.digits()
	if err == nil && len(digits) > 1 && digits[0] == '0' {
		s.pos -= len(digits)
		return nil, s.unexpected("a number without leading zeros")
	}
	return digits, err
}

// digits reads one or more decimal digits.
func (s *scanner) digits() ([]byte, *Error) {
	start := s.pos
	for s.pos < len(s.raw) && s.raw[s.pos] >= '0' && s.raw[s.pos] <= '9' {
		s.pos++
	}
	switch {
	case s.pos > start:
		return s.raw[start:s.pos], nil
	case s.pos >= len(s.raw):
		return nil, s.cut()
	default:
		return nil, s.unexpected("a digit")
	}
}

// exponent reads the exponent of the number that started at start, 0 when it
// has none.
func (s *scanner) exponent(start int) (int, *Error) {
	if s.pos >= len(s.raw) || s.raw[s.pos]|0x20 != 'e' {
		return 0, nil
	}
	s.pos++
	negative := false
	if s.pos < len(s.raw) && (s.raw[s.pos] == '+' || s.raw[s.pos] == '-') {
		negative = s.raw[s.pos] == '-'
		s.pos++
	}
	digits, err := s.digits()
	if err != nil {
		return 0, err
	}
	if len(digits) > maxExponentDigits {
		return 0, outOfRange(start, "the exponent of a number is too large")
	}
	n := 0
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// trimZeros removes the leading zeros of the digits whole+fraction, and moves
// the trailing ones into the exponent.
func trimZeros(whole, fraction []byte, exponent int) (_, _ []byte, _ int) {
	whole = bytes.TrimLeft(whole, "0")
	if len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	trimmed := bytes.TrimRight(fraction, "0")
	exponent += len(fraction) - len(trimmed)
	fraction = trimmed
	if len(fraction) == 0 {
		trimmed = bytes.TrimRight(whole, "0")
		exponent += len(whole) - len(trimmed)
		whole = trimmed
	}
	return whole, fraction, exponent
}

func appendNumber(dst []byte, negative bool, whole, fraction []byte, exponent int) []byte {
	if negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, whole...), fraction...)
	if exponent == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
}
