package gormplugin

import (
	"strings"

	"gorm.io/gorm/clause"
)

// amountOf reads an assignment to a stock column: a Delta, or an expression that is exactly the column plus or minus one
// number. found is false for all else, which is an absolute write.
func (o *operation) amountOf(c *column, value any) (n number, add, found bool, refusal *Error) {
	var raw any
	switch v := value.(type) {
	case Delta:
		if !v.valid() {
			return n, add, true, o.badAmount(c, "Sub and Add want an amount from 1 to 2^53-1")
		}
		return whole(v.amount()), v.isAdd(), true, nil
	case clause.Expr:
		raw, add, found = o.step(c, v)
	case *clause.Expr:
		if v != nil {
			raw, add, found = o.step(c, *v)
		}
	}
	if !found {
		return n, false, false, nil
	}
	n, ok := numberOf(raw)
	switch {
	case !ok:
		return n, add, true, o.badAmount(c, "an amount is a whole number, or for a decimal column its text; never a float")
	case n.sign() <= 0, n.isWhole() && n.i > maxAmount:
		return n, add, true, o.badAmount(c, "an amount is from 1 to 2^53-1")
	case !n.isWhole() && (c.field != nil && !c.decimal || o.dialect == dialectSQLite):
		return n, add, true, o.badAmount(c, "a fraction on a column of whole numbers")
	case !n.isWhole() && c.scale >= 0 && digitsBehindPoint(n) > c.scale:
		return n, add, true, o.badAmount(c, "more digits behind the point than the column keeps")
	}
	return n, add, true, nil
}

// badAmount is about a number that may have come from outside, so it is a fault of the client's until shown otherwise.
func (o *operation) badAmount(c *column, hint string) *Error {
	return &Error{sentinel: ErrInvalid, typ: typeInvalid, reason: "amount", table: o.table.name, column: c.name, hint: hint}
}

func digitsBehindPoint(n number) int {
	_, digits, _ := strings.Cut(n.text, ".")
	return len(digits)
}

// step reads `col + ?` and `col - ?`: the column itself, quoted or qualified or as a variable, the sign, and one number or
// placeholder. Nothing else may stand before, between or behind.
func (o *operation) step(c *column, e clause.Expr) (amount any, add, ok bool) {
	text, vars := strings.TrimSpace(e.SQL), e.Vars
	i := strings.IndexAny(text, "+-")
	if i < 0 {
		return nil, false, false
	}
	left, right := strings.TrimSpace(text[:i]), strings.TrimSpace(text[i+1:])
	add = text[i] == '+'
	if left == "?" && len(vars) > 0 {
		col, isColumn := vars[0].(clause.Column)
		if !isColumn || col.Alias != "" || !o.isOwnTable(col.Table) || o.table.byColumn(col.Name) != c {
			return nil, false, false
		}
		vars = vars[1:]
	} else if !o.isColumnText(c, left) {
		return nil, false, false
	}
	switch {
	case right == "?" && len(vars) == 1:
		return vars[0], add, true
	case right != "" && len(vars) == 0 && strings.Trim(right, "0123456789.") == "":
		return right, add, true
	}
	return nil, false, false
}

// isColumnText reports whether text is the column's name, alone or behind the table's, quoted or not.
func (o *operation) isColumnText(c *column, text string) bool {
	qualifier, name := splitName(text)
	if qualifier == "" && name != text {
		return false
	}
	for _, part := range []string{qualifier, name} {
		if bare := strings.Trim(part, "`\""); strings.ContainsFunc(bare, func(r rune) bool { return r < 0x80 && !isWordByte(byte(r)) && r != '.' }) {
			return false
		}
	}
	return strings.EqualFold(bareName(name), c.name) && o.isOwnTable(bareName(qualifier))
}

func (o *operation) isOwnTable(name string) bool {
	return name == "" || name == clause.CurrentTable || strings.EqualFold(name, o.stmt.Table) || strings.EqualFold(name, o.table.name)
}
