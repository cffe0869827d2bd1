package wire

import "encoding/json"

// Recipe is work that is described in a file, as it stands.
type Recipe struct {
	Name        string          `json:"name"` // empty: the file never held a good one
	File        string          `json:"file"`
	Hash        string          `json:"hash,omitempty"` // of the version in use
	Description string          `json:"description,omitempty"`
	State       string          `json:"state"` // on, off, broken; broken: the version in use, if any, is an older one
	Karmax      bool            `json:"karmax,omitempty"`
	Starts      []string        `json:"starts,omitempty"` // when it runs, in English
	Grants      []string        `json:"grants,omitempty"` // scopes beside the role recipe
	Problems    []RecipeProblem `json:"problems,omitempty"`
	Warnings    []RecipeProblem `json:"warnings,omitempty"`
	Started     int64           `json:"started"` // how often
	LastRun     string          `json:"last_run,omitempty"`
	LastAt      int64           `json:"last_at,omitempty"`  // Unix µs
	Withheld    int64           `json:"withheld,omitempty"` // what came while it was off
	Since       int64           `json:"since"`              // when this came about, Unix µs
}

// RecipeProblem is one thing that is wrong with a file, or was let pass.
type RecipeProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`   // from 1
	Column  int    `json:"column,omitempty"` // from 1
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// RecipeListResult is every recipe.
type RecipeListResult struct {
	Dir     string   `json:"dir"`
	Trouble string   `json:"trouble,omitempty"` // why the directory cannot be read
	Late    string   `json:"late,omitempty"`    // why changes are seen only now and then
	Recipes []Recipe `json:"recipes"`
}

// RecipeRequest names a recipe.
type RecipeRequest struct {
	Name string `json:"name"`
}

// RecipeResult is a recipe as it stands now.
type RecipeResult struct {
	Recipe Recipe `json:"recipe"`
}

// RecipeShowResult is a recipe with what it says.
type RecipeShowResult struct {
	Recipe Recipe   `json:"recipe"`
	Says   []string `json:"says,omitempty"` // when it runs and what it may do, in English
	Text   string   `json:"text,omitempty"` // of the version in use
}

// RecipeRunRequest starts a recipe by hand.
type RecipeRunRequest struct {
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload,omitempty"` // an object: the inputs
	Force   bool            `json:"force,omitempty"`   // also while it is off
}

// RecipeRunResult is what was started.
type RecipeRunResult struct {
	RunID string `json:"run_id"`
}

// RecipeTool is a tool that a step can call.
type RecipeTool struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"` // the schema of what it takes
}

// RecipeWorldResult is what a recipe can refer to outside its file.
type RecipeWorldResult struct {
	Tools   []RecipeTool `json:"tools"`
	Kinds   []string     `json:"kinds"` // of work that steps can start
	Loops   []string     `json:"loops"`
	Secrets []string     `json:"secrets"` // names
	Recipes []string     `json:"recipes"` // in use
}
