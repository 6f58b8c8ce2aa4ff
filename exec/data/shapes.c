/* exec/data/shapes.c - the procedural image set: ten classes of rendered shapes.
 *
 * A sample is drawn from counters keyed by (seed, split, id): a shape of class id % 10 at a random
 * place, size and angle, in a light random colour over a dark random gradient, with a line of a
 * third colour across and pixel noise. Edges are anti-aliased by signed distance, so any image side
 * works. Colour, place and angle do not depend on the class. Samples are made on demand, in 15 to
 * 40 us for 32 x 32. Read shapes_sample() first. */
#include <math.h>
#include <stdlib.h>

#include "exec/data/counter.h"
#include "exec/data/dataset.h"

#define MEAN 0.35f
#define STD 0.25f

enum shape_class {
    SHAPE_DISC,
    SHAPE_RING,
    SHAPE_SQUARE,
    SHAPE_FRAME,
    SHAPE_TRIANGLE,
    SHAPE_STAR,
    SHAPE_CROSS,
    SHAPE_CRESCENT,
    SHAPE_TWINS, /* two discs */
    SHAPE_HOOK,  /* an L */
    SHAPE_COUNT
};

struct point {
    float x, y;
};

/* Corners inside the unit circle, in order along the outline. */
static const struct point square[] = {
    {-.8f, -.8f},
    {.8f,  -.8f},
    {.8f,  .8f },
    {-.8f, .8f }
};
static const struct point triangle[] = {
    {0,     -1 },
    {.87f,  .5f},
    {-.87f, .5f}
};
static const struct point star[] = {
    {0,      -1    },
    {.235f,  -.324f},
    {.951f,  -.309f},
    {.38f,   .124f },
    {.588f,  .809f },
    {0,      .4f   },
    {-.588f, .809f },
    {-.38f,  .124f },
    {-.951f, -.309f},
    {-.235f, -.324f}
};
static const struct point cross[] = {
    {-.3f, -1  },
    {.3f,  -1  },
    {.3f,  -.3f},
    {1,    -.3f},
    {1,    .3f },
    {.3f,  .3f },
    {.3f,  1   },
    {-.3f, 1   },
    {-.3f, .3f },
    {-1,   .3f },
    {-1,   -.3f},
    {-.3f, -.3f}
};
static const struct point hook[] = {
    {-.8f, -1 },
    {-.2f, -1 },
    {-.2f, .4f},
    {.8f,  .4f},
    {.8f,  1  },
    {-.8f, 1  }
};

enum { MAX_CORNERS = 12 };

/* A polygon ready for many distances: its edges with the divisions done. */
struct polygon {
    int n;
    struct polygon_edge {
        float x, y, ex, ey; /* from (x, y) to (x + ex, y + ey) */
        float inverse;      /* 1 / length^2 */
        float slope;        /* ex / ey; 0 for level edges, which no ray crosses */
    } edges[MAX_CORNERS];
};

static void polygon_init(struct polygon *polygon, const struct point *corner, int n)
{
    polygon->n = n;
    for (int i = 0, j = n - 1; i < n; j = i++) {
        float ex = corner[j].x - corner[i].x, ey = corner[j].y - corner[i].y;
        polygon->edges[i] = (struct polygon_edge){.x = corner[i].x,
                                                  .y = corner[i].y,
                                                  .ex = ex,
                                                  .ey = ey,
                                                  .inverse = 1 / (ex * ex + ey * ey),
                                                  .slope = ey == 0 ? 0 : ex / ey};
    }
}

/* Signed distance to a simple polygon, negative inside: the distance to the nearest edge, with the
 * sign from the parity of crossings of a ray. */
static float polygon_distance(const struct polygon *polygon, float x, float y)
{
    float best = INFINITY;
    unsigned inside = 0;
    for (int i = 0; i < polygon->n; i++) {
        const struct polygon_edge *e = &polygon->edges[i];
        float px = x - e->x, py = y - e->y;
        float t = (px * e->ex + py * e->ey) * e->inverse;
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        float dx = px - t * e->ex, dy = py - t * e->ey, d = dx * dx + dy * dy;
        best = d < best ? d : best;
        inside ^= (unsigned)((0 > py) != (e->ey > py)) & (unsigned)(px < py * e->slope);
    }
    return inside ? -sqrtf(best) : sqrtf(best);
}

static float disc_distance(float x, float y, float cx, float radius)
{
    return sqrtf((x - cx) * (x - cx) + y * y) - radius;
}

#define CORNERS(name) name, (int)(sizeof(name) / sizeof *(name))

/* The outline of a shape that has corners; n = 0 for the others. */
static void shape_outline(enum shape_class shape, struct polygon *polygon)
{
    polygon->n = 0;
    if (shape == SHAPE_SQUARE || shape == SHAPE_FRAME)
        polygon_init(polygon, CORNERS(square));
    else if (shape == SHAPE_TRIANGLE)
        polygon_init(polygon, CORNERS(triangle));
    else if (shape == SHAPE_STAR)
        polygon_init(polygon, CORNERS(star));
    else if (shape == SHAPE_CROSS)
        polygon_init(polygon, CORNERS(cross));
    else if (shape == SHAPE_HOOK)
        polygon_init(polygon, CORNERS(hook));
}

static float shape_distance(enum shape_class shape, const struct polygon *polygon, float x, float y)
{
    switch (shape) {
    case SHAPE_DISC:
        return disc_distance(x, y, 0, .9f);
    case SHAPE_RING:
        return fabsf(disc_distance(x, y, 0, .75f)) - .2f;
    case SHAPE_FRAME:
        return fabsf(polygon_distance(polygon, x * 1.15f, y * 1.15f)) - .2f;
    case SHAPE_CRESCENT:
        return fmaxf(disc_distance(x, y, 0, .95f), -disc_distance(x, y, .45f, .75f));
    case SHAPE_TWINS:
        return fminf(disc_distance(x, y, -.55f, .42f), disc_distance(x, y, .55f, .42f));
    default:
        return polygon_distance(polygon, x, y);
    }
}

/* The share of a pixel of side `pixel` that lies inside the shape, from the signed distance of its
 * centre. */
static float coverage(float distance, float pixel)
{
    float c = .5f - distance / pixel;
    return c < 0 ? 0 : c > 1 ? 1 : c;
}

/* All random choices of a sample. Lengths are in units of the image's side. */
struct scene {
    float x, y, size, cos, sin;
    float ink[3], ground[2][3], line[3];
    float line_x, line_y, line_cos, line_sin, line_width;
};

static void draw_scene(uint64_t key, struct scene *scene)
{
    uint64_t i = 0;
    float angle = (float)(1.4 * counter_unit(key, i++) - .7); /* up to 40 degrees either way */
    scene->size = (float)(.28 + .16 * counter_unit(key, i++));
    scene->x = (float)(scene->size + (1 - 2 * scene->size) * counter_unit(key, i++));
    scene->y = (float)(scene->size + (1 - 2 * scene->size) * counter_unit(key, i++));
    scene->cos = cosf(angle);
    scene->sin = sinf(angle);
    angle = (float)(6.283185307179586 * counter_unit(key, i++));
    scene->line_cos = cosf(angle);
    scene->line_sin = sinf(angle);
    scene->line_x = (float)counter_unit(key, i++);
    scene->line_y = (float)counter_unit(key, i++);
    scene->line_width = (float)(.01 + .03 * counter_unit(key, i++));
    /* The ground is dark and the ink light, both of any hue, so brightness does not reveal the
     * class. */
    for (int c = 0; c < 3; c++) {
        scene->ground[0][c] = (float)(.5 * counter_unit(key, i++));
        scene->ground[1][c] = (float)(.5 * counter_unit(key, i++));
        scene->ink[c] = (float)(.5 + .5 * counter_unit(key, i++));
        scene->line[c] = (float)counter_unit(key, i++);
    }
}

static enum status shapes_sample(const struct dataset *dataset, enum split split, int64_t id,
                                 const struct sample_out *out, struct err *err)
{
    int side = dataset->image;
    float pixel = 1.0f / (float)side;
    uint64_t key = counter_key(dataset->seed ^ 0x736861706573u, (uint64_t)split, (uint64_t)id);
    uint64_t noise_key = rng_mix(key);
    enum shape_class shape = (enum shape_class)(id % SHAPE_COUNT);
    struct scene scene;
    struct polygon polygon;
    (void)err;
    if (out->labels)
        out->labels[0] = (int32_t)shape;
    if (!out->image)
        return OK;
    draw_scene(key, &scene);
    shape_outline(shape, &polygon);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            float px = ((float)x + .5f) * pixel, py = ((float)y + .5f) * pixel;
            float u = (px - scene.x) / scene.size, v = (py - scene.y) / scene.size;
            float inside = 0;
            if (u * u + v * v < 2.0f)
                inside = coverage(shape_distance(shape, &polygon, u * scene.cos + v * scene.sin,
                                                 v * scene.cos - u * scene.sin) *
                                      scene.size,
                                  pixel);
            float across =
                fabsf((px - scene.line_x) * scene.line_sin - (py - scene.line_y) * scene.line_cos);
            float line = .7f * coverage(across - .5f * scene.line_width, pixel);
            for (int c = 0; c < 3; c++) {
                size_t at = ((size_t)c * (size_t)side + (size_t)y) * (size_t)side + (size_t)x;
                float value = scene.ground[0][c] * (1 - py) + scene.ground[1][c] * py;
                value += inside * (scene.ink[c] - value);
                value += line * (scene.line[c] - value);
                /* The sum of four uniforms: standard deviation 0.08 after scaling. */
                uint32_t bits = rng_bits(noise_key, (uint32_t)at);
                float noise = (float)((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) +
                                      (bits >> 24)) /
                                  256.0f -
                              2.0f;
                value += .139f * noise;
                /* MEAN and STD are approximately the mean and deviation of the whole set. */
                out->image[at] = (value - MEAN) / STD;
            }
        }
    return OK;
}

enum status shapes_open(int image, int64_t num_train, int64_t num_test, uint64_t seed,
                        struct dataset *dataset, struct err *err)
{
    if (image < 8 || image > 4096)
        return err_set(err, ERR_INPUT, "synthetic images must be 8..4096 pixels a side, got %d",
                       image);
    *dataset = (struct dataset){
        .channels = 3,
        .image = image,
        .labels_per_sample = 1,
        .targets_per_sample = 1,
        .classes = SHAPE_COUNT,
        .seed = seed,
        .num_samples = {num_train, num_test},
        .pixel_mean = { MEAN,     MEAN,     MEAN},
        .pixel_std = { STD,      STD,      STD},
        .sample = shapes_sample
    };
    return OK;
}
