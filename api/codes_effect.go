package api

// EffectRow says what a code of an effect or a delivery means, and what to do.
type EffectRow struct {
	Meaning string
	Fix     string
}

// EffectCodes are the codes that stand in an effect's error.code. Some words
// stand in Codes, too, for something else: there it is a request that is
// refused, here it is what a receiver said.
var EffectCodes = map[Code]EffectRow{
	"receiver_error":          {"The receiver failed (a status of 500 to 599).", "Look at the receiver; the effect is sent again where that is safe, else resolve it."},
	"redirected":              {"The receiver redirects. Deliveries follow no redirect: a POST would become a GET.", "Put the new address into the destination, then redeliver."},
	"not_found":               {"The receiver does not know the address.", "Correct the destination's address, then redeliver."},
	"gone":                    {"The receiver says that the address is gone for good.", "Correct or remove the destination; redeliver to a new address."},
	"bad_answer":              {"What answered does not speak HTTP as a receiver should.", "Check the destination's address and what stands between."},
	"rejected":                {"The receiver refuses the request as it stands (4xx).", "Correct what the effect sends or the receiver, then redeliver."},
	"unauthorized":            {"The receiver does not accept the signature or credential (401, 403).", "Correct the destination's secret; what waits goes out then."},
	"rate_limited":            {"The receiver asks to wait (429).", "Nothing: the effect waits as long as it asks."},
	"request_timeout":         {"The receiver gave up waiting for the request (408).", "Nothing, unless it stays so."},
	"timeout":                 {"The receiver did not answer in time; it may have acted.", "Look at the receiver, then resolve or redeliver."},
	"connection":              {"The connection broke after the request was sent; the receiver may have acted.", "Look at the receiver, then resolve or redeliver."},
	"attempts_exhausted":      {"All tries of the schedule are used up.", "Mend the receiver, then redeliver."},
	"outcome_unknown":         {"A delivery was sent and its outcome is not known, and sending again may do harm.", "Look at the receiver, then resolve it as delivered, or redeliver."},
	"worker_lost":             {"The process that delivered is gone; whether it had sent is not known.", "Look at the receiver, then resolve or redeliver."},
	"secret_unavailable":      {"The destination's secret cannot be read; nothing was sent.", "Make the secret readable to the workers."},
	"invalid_secret":          {"The destination's secret cannot be used for signing; nothing was sent.", "Use a secret as the receiver gives it."},
	"blocked":                 {"The address leads to a private or loopback range, which the destination does not allow; nothing was sent.", "Set allow_private where that is meant, or correct the address."},
	"withheld":                {"The try was not begun: the process's heartbeat was too old.", "Nothing: another process begins it."},
	"invalid_url":             {"The destination's address, with the effect's path, is no URL; nothing was sent.", "Correct the destination or the path."},
	"invalid_message":         {"The message cannot be written as mail; nothing was sent.", "Correct the recipient, the subject or the text."},
	"put_off":                 {"The mail server asks to try again later.", "Nothing: the effect is sent again."},
	"resolve_failed":          {"The receiver's host name was not resolved; nothing was sent.", "Check the destination's address and the name service."},
	"connect_failed":          {"The receiver could not be connected to; nothing was sent.", "Check that the receiver runs and can be reached."},
	"tls_failed":              {"The receiver's TLS handshake failed; nothing was sent.", "Check the receiver's certificate."},
	"write_failed":            {"The connection broke before the request was sent whole.", "Nothing: the effect is sent again."},
	"internal":                {"The delivery ended in a fault of onefold itself; the receiver may have acted.", "Look at the workers' logs and at the receiver, then resolve or redeliver."},
	"arrived_before":          {"Nothing was sent: the destination says that an earlier delivery had arrived.", "Nothing: the effect counts as delivered."},
	"cannot_tell":             {"The destination could not be asked whether an unclear delivery had arrived; it is asked again.", "Nothing, unless it stays so: then look at the receiver, and resolve or redeliver."},
	"follow_up_failed":        {"The follow-up task of an effect could not be made.", "Mend what the message names; resolve the task with finish."},
	"destination_not_allowed": {"The destination does not serve this tenant; nothing was sent.", "Use a destination that names the tenant, or have an operator add it."},
	"sql_failed":              {"Postgres refused the statement of an sql effect.", "Mend what the message names; resolve the task with finish, or redeliver the effect."},
	"render_failed":           {"The effect could not be rendered with this input and result.", "Correct the template or the data it names."},
}
