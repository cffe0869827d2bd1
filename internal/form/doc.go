// Package form knows the small forms that a person fills in to approve a call: what
// may be asked, whether an answer fits, and how an answer is written as words.
//
// A form is a JSON Schema of one flat object, as the Model Context Protocol has them
// for elicitation: text (with lengths, a format or choices), numbers, whole numbers,
// yes or no, and lists of choices, each with a title, a description and a default. A
// schema with anything else that an answer would have to keep to is refused, so that
// what passes Check passes the schema too. An object without properties is a plain
// question.
//
// Whoever wrote the schema may be a stranger. Titles, descriptions and choices are
// cleaned and bounded before anybody sees them. A name or a choice that would have to
// be changed for that is refused, because it could not be written as it is shown.
package form
