package fakellm

// extractJSON finds the fields of an invoice in a text.
func extractJSON(string) string { return `{"number":null,"date":null,"currency":null,"total":null}` }
