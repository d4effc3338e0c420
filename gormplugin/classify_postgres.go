package gormplugin

import "strings"

// classifyPostgres knows the errors of pgx and of lib/pq, which both have SQLState and name the constraint in a field.
func classifyPostgres(err error) dbError {
	coded, ok := err.(interface{ SQLState() string })
	if !ok {
		return dbError{}
	}
	// Any error ends a PostgreSQL transaction up to the last savepoint; rolling back is left to whoever owns that.
	state := coded.SQLState()
	found := dbError{class: postgresClass(state), server: true}
	switch found.class {
	case uniqueViolation, checkViolation:
		found.name = textField(err, "ConstraintName", "Constraint")
		found.table = textField(err, "TableName", "Table")
		found.columns = postgresColumns(textField(err, "Detail"))
	case deadTx:
		found.aborted = true
	case conflicting:
		found.reason = map[string]string{"40001": "serialization", "40P01": "deadlock", "55P03": "lock_wait"}[state]
	case lost:
		found.server = false
	}
	return found
}

func postgresClass(state string) class {
	switch state {
	case "":
		return notOurs
	case "23505", "23P01": // an exclusion constraint is a unique index over ranges
		return uniqueViolation
	case "23514":
		return checkViolation
	case "22003":
		return outOfRange
	case "40001", "40P01", "55P03":
		return conflicting
	case "25P02":
		return deadTx
	case "25006", "57014", "25P03", "25P04": // read-only: a replica, or a primary on its way out; a timeout of the server
		return unavailable
	case "40003":
		return lost
	}
	switch {
	case strings.HasPrefix(state, "53"), strings.HasPrefix(state, "57P0"), strings.HasPrefix(state, "28"):
		return unavailable
	case strings.HasPrefix(state, "08"): // poolers say so when the server behind them went away
		return lost
	}
	return otherServer
}

// postgresColumns reads the columns out of "Key (user_id, item_id)=(1, 2) already exists.", which is localised but for its
// parentheses. On a partition the index has a name of its own, and only the columns tell which one it is.
func postgresColumns(detail string) []string {
	_, rest, ok := strings.Cut(detail, "(")
	if !ok {
		return nil
	}
	list, _, ok := strings.Cut(rest, ")=(")
	if !ok {
		return nil
	}
	columns := strings.Split(list, ", ")
	for i, c := range columns {
		columns[i] = strings.ReplaceAll(strings.Trim(c, `"`), `""`, `"`)
	}
	return columns
}
