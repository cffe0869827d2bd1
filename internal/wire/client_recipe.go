package wire

import "context"

// RecipeList calls recipe.list: work that is described in files.
func (c *Client) RecipeList(ctx context.Context) (RecipeListResult, error) {
	return call(ctx, c, RecipeList, Empty{})
}

// RecipeShow calls recipe.show: one recipe with what it says.
func (c *Client) RecipeShow(ctx context.Context, req RecipeRequest) (RecipeShowResult, error) {
	return call(ctx, c, RecipeShow, req)
}

// RecipeRun calls recipe.run: starts a recipe by hand.
func (c *Client) RecipeRun(ctx context.Context, req RecipeRunRequest) (RecipeRunResult, error) {
	return call(ctx, c, RecipeRun, req)
}

// RecipeEnable calls recipe.enable: lets a recipe be started again.
func (c *Client) RecipeEnable(ctx context.Context, req RecipeRequest) (RecipeResult, error) {
	return call(ctx, c, RecipeEnable, req)
}

// RecipeDisable calls recipe.disable: keeps a recipe from being started by anything.
func (c *Client) RecipeDisable(ctx context.Context, req RecipeRequest) (RecipeResult, error) {
	return call(ctx, c, RecipeDisable, req)
}

// RecipeWorld calls recipe.world: what a recipe can refer to.
func (c *Client) RecipeWorld(ctx context.Context) (RecipeWorldResult, error) {
	return call(ctx, c, RecipeWorld, Empty{})
}
